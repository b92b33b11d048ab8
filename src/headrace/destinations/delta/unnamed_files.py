"""Files below a table that no version of its log names: what VACUUM removes, without its jobs.

Those of earlier runs of this pipeline, left by a crash, go at once: the table has the epoch of this run by then, and
they cannot commit to it. All others when they are old enough; Delta keeps the names of files that left the table for as
long.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator

import pyarrow.fs as pa_fs
import structlog
from pyiceberg.io.pyarrow import PyArrowFileIO

from ...errors import DestinationError
from ..lake.fence import is_of_earlier_run
from ..lake.files import TableLayout, Written
from ..lake.maintenance.held import HeldTable
from ..lake.places import file_io
from .java import DeltaJava, delta_errors
from .log_state import vector_path, whole_path
from .table import DeltaTable

__all__ = ["remove_unnamed"]

_log = structlog.get_logger("headrace.destinations.delta")

# With a shorter age, the stream's own files must not be on their way while they are looked for.
_SAFE_AGE_S = 3600.0


def remove_unnamed(java: DeltaJava, held: HeldTable, age_s: float) -> int:
    """Returns how many files it was."""
    with held.lock:
        table: DeltaTable | None = held.table
        if table is None or held.copying:
            return 0
        table.refresh()
        if table.fence.epoch and not table.fence.has_marked(table.properties()):
            table.add(Written(), {})
        layout, live = table.layout, table.files().live
        named = {*live, *(file.vector.path for file in live.values() if file.vector is not None)}
        if age_s < _SAFE_AGE_S:
            return _remove(java, layout, named, age_s)
    # What the stream commits from now on is of this run, and young when the files are listed.
    return _remove(java, layout, named, age_s)


def _remove(java: DeltaJava, layout: TableLayout, named: set[str], age_s: float) -> int:
    io = file_io(layout)
    if not isinstance(io, PyArrowFileIO):
        return 0
    scheme, host, path = PyArrowFileIO.parse_location(layout.data_location)
    files = io.fs_by_scheme(scheme, host)
    listed = files.get_file_info(pa_fs.FileSelector(path, recursive=True))
    _check_complete(layout, path, named, listed)
    # After the listing: what left the table until now is known to have been in it.
    places = {_place(found) for found in (*named, *_left(java, layout))}
    oldest = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age_s)
    gone = [info for info in listed if _is_unnamed(info, path, places) and _may_go(info, path, layout, oldest)]
    for info in gone:
        files.delete_file(info.path)
    if gone:
        _log.info("files that nobody names were removed", table=layout.name, files=len(gone))
    return len(gone)


def _check_complete(layout: TableLayout, path: str, named: set[str], listed: Iterable[pa_fs.FileInfo]) -> None:
    """Raise unless every file in use was found: else what names them is damaged, or spells their location otherwise,
    and all of them would seem to be unnamed.
    """
    below = _place(path).rstrip("/") + "/"
    missing = {place for place in map(_place, named) if place.startswith(below)}
    missing.difference_update(_place(info.path) for info in listed)
    if missing:
        msg = f"the listing of table {layout.name} lacks {len(missing)} files that are in use: no files are removed"
        raise DestinationError(msg, detail=f"one of them is {min(missing)}")


def _left(java: DeltaJava, layout: TableLayout) -> Iterator[str]:
    """Files that left the table and that versions not too old still name."""
    location = layout.data_location
    with delta_errors(f"list the files of table {layout.name}"):
        removed = java.removed(java.updated(java.log(location)))
    for entry in removed:
        yield whole_path(location, entry["path"])
        if entry.get("deletionVector"):
            yield vector_path(location, entry["deletionVector"])


def _is_unnamed(info: pa_fs.FileInfo, path: str, places: set[str]) -> bool:
    """Delta's own are below directories that begin with an underscore."""
    below = info.path.removeprefix(path).lstrip("/")
    is_file = info.type == pa_fs.FileType.File and not below.startswith(("_", "."))
    return is_file and _place(info.path) not in places


def _may_go(info: pa_fs.FileInfo, path: str, layout: TableLayout, oldest: datetime.datetime) -> bool:
    run = info.path.removeprefix(path).lstrip("/").split("/")[0] + "-"
    if is_of_earlier_run(layout.file_prefix, run):
        # Of a later run: this one may be the one that was replaced.
        return False
    return is_of_earlier_run(run, layout.file_prefix) or (info.mtime is not None and info.mtime < oldest)


def _place(location: str) -> str:
    """Without scheme and leading slashes."""
    return location.rsplit("://", maxsplit=1)[-1].removeprefix("file:").lstrip("/")
