"""Places for segments: a local directory, and any fsspec file system."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import secrets
import shutil
import stat
import tempfile
import weakref
import zlib
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, SpoolCorrupt, SpoolGap, SpoolIoError
from ..private_files import Access, create_file, grant, group_access, make_directory, secure_directory, sync_directory
from ..remedies import is_disk_full, make_room
from .contract import Entry, Place

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LocalPlace", "ObjectPlace", "open_place", "publish_json", "read_json", "space_hint"]

_STAGING = "staging"
_CHECKSUM = "crc32"


def open_place(
    uri: str, storage_options: Mapping[str, Any] | None = None, staging: Path | None = None, group: str | None = None
) -> Place:
    """A path or file:// URI gives a local directory, anything else goes through fsspec.

    `staging` is where a remote place's files are written before they are uploaded; by default a temporary directory.
    Members of `group` may read a local directory.
    """
    if "://" not in uri or uri.startswith("file://"):
        return LocalPlace(Path(uri.removeprefix("file://")), group)
    return ObjectPlace(uri, storage_options or {}, staging)


def publish_json(place: Place, name: str, content: Mapping[str, Any]) -> None:
    """Write a small JSON file with a checksum, replacing an older one durably and atomically."""
    content = {**content, _CHECKSUM: _checksum(content)}
    staged = place.staging / f"{name}.{secrets.token_hex(8)}"
    try:
        create_file(staged)
        with staged.open("w") as file:
            file.write(json.dumps(content))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SpoolIoError(f"cannot write {staged}", detail=error.strerror, hint=space_hint(error, staged)) from error
    place.publish(staged, name)
    place.sync()


def read_json(place: Place, name: str, keys: Collection[str], hint: str) -> dict[str, Any] | None:
    """Return the content of such a file, or None if there is none; `keys` are those that it may have.

    A file that an earlier version wrote has no checksum. Raises SpoolCorrupt, with the hint.
    """
    if all(entry.name != name for entry in place.entries()):
        return None
    where = f"{place.location}/{name}"
    try:
        found = json.loads(place.read(name).to_pybytes())
        checksum = found.pop(_CHECKSUM, None)
    except (AttributeError, TypeError, ValueError) as error:
        raise SpoolCorrupt(f"{where} cannot be read", hint=hint) from error
    if not found.keys() <= set(keys) or checksum not in (None, _checksum(found)):
        raise SpoolCorrupt(f"{where} is damaged: its content does not match its checksum", hint=hint)
    return dict(found)


def _checksum(content: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


@contextlib.contextmanager
def _io_errors(what: str, where: object) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise SpoolCorrupt(f"cannot {what} {where}: it is not there") from error
    except OSError as error:
        detail = error.strerror or str(error)
        raise SpoolIoError(f"cannot {what} {where}", detail=detail, hint=space_hint(error, where)) from error


def space_hint(error: OSError, where: object) -> str | None:
    """Return what to do about a full disk, which has this path; None for any other error."""
    if not is_disk_full(error):
        return None
    # The place of a remote spool is no path here: the file is, that was to be uploaded.
    path = where if isinstance(where, Path) else error.filename
    room = make_room(path) if path else "free space there: the pipeline then continues by itself"
    return f"{room}; or lower spool.quota_bytes"


@contextlib.contextmanager
def _remote_errors(what: str, where: object) -> Iterator[None]:
    with _io_errors(what, where):
        try:
            yield
        except (OSError, SpoolIoError):
            raise
        except Exception as error:
            # Behind fsspec stand the SDKs of many vendors, each with exceptions of its own; all mean that it failed.
            raise SpoolIoError(f"cannot {what} {where}", detail=f"{type(error).__name__}: {error}") from error


class LocalPlace:
    """A directory. Publishing is a rename within the file system, so staging lies inside it."""

    def __init__(self, root: Path, group: str | None = None) -> None:
        self._group = group
        self.root = root
        self.location = str(root)
        self.staging = root / _STAGING
        self._entries: dict[str, Entry] = {}
        """By name, as they were listed last: a file that was published stays as it is."""
        try:
            if not root.is_dir():
                make_directory(root, self._access)
            if not self.staging.is_dir():
                make_directory(self.staging)
        except OSError as error:
            remedy = "choose a directory that you may write to, on a disk with space: data_dir or spool.uri"
            detail = error.strerror or str(error)
            raise SpoolIoError(f"cannot create the spool directory {root}", detail=detail, hint=remedy) from error

    @property
    def _access(self) -> Access:
        # Looked up when it is needed: readers on other machines may not know the group.
        return group_access(self._group)

    def secure(self) -> None:
        with _io_errors("set the modes of", self.root):
            secure_directory(self.root, self._access)
            secure_directory(self.staging)
            for entry in self.entries():
                grant(self.root / entry.name, self._access.file_mode, self._access)

    def publish(self, staged: Path, name: str) -> None:
        with _io_errors("publish", self.root / name):
            try:
                grant(staged, self._access.file_mode, self._access)
                os.replace(staged, self.root / name)
            except FileNotFoundError as error:
                raise SpoolGap(f"the spool directory {self.root} was emptied or removed") from error

    def sync(self) -> None:
        with _io_errors("sync the spool directory", self.root):
            sync_directory(self.root)

    def entries(self) -> list[Entry]:
        with _io_errors("list the spool directory", self.root):
            try:
                names = os.listdir(self.root)
            except FileNotFoundError as error:
                raise SpoolGap(f"the spool directory {self.root} is gone") from error
            known = self._entries
            found = {name: entry for name in names if (entry := known.get(name) or self._entry(name)) is not None}
        self._entries = found
        return list(found.values())

    def _entry(self, name: str) -> Entry | None:
        try:
            status = os.stat(self.root / name)
        except FileNotFoundError:  # released between the listing and the look at it
            return None
        return None if stat.S_ISDIR(status.st_mode) else Entry(name, status.st_size, status.st_mtime)

    def read(self, name: str) -> pa.Buffer:
        import pyarrow as pa  # noqa: PLC0415 - listing, which is all that `headrace status` does, needs no Arrow

        with _io_errors("read", self.root / name), pa.memory_map(str(self.root / name)) as file:
            return file.read_buffer()

    def delete(self, name: str) -> None:
        with _io_errors("delete", self.root / name):
            (self.root / name).unlink(missing_ok=True)


class ObjectPlace:
    """A prefix of an object store or remote file system. Publishing is an upload, which the store makes atomic."""

    def __init__(self, uri: str, storage_options: Mapping[str, Any], staging: Path | None = None) -> None:
        import fsspec  # noqa: PLC0415 - a local directory needs none

        try:
            self._fs, self._root = fsspec.url_to_fs(uri, **storage_options)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"cannot use the spool URI {uri.partition('?')[0]}",
                detail=str(error),
                hint="install the package the detail names (for s3:// pip install 'headrace[s3]'), or use a directory",
            ) from error
        self._root = self._root.rstrip("/")
        self.location = uri.partition("?")[0].rstrip("/")
        self._bypass = _cache_bypass(self._fs)
        if staging is None:
            self.staging = Path(tempfile.mkdtemp(prefix="headrace-spool-"))
            weakref.finalize(self, shutil.rmtree, self.staging, ignore_errors=True)
        else:
            self.staging = staging
            with _io_errors("create the staging directory", staging):
                make_directory(staging)

    def secure(self) -> None:
        with _io_errors("set the mode of", self.staging):
            secure_directory(self.staging)

    def publish(self, staged: Path, name: str) -> None:
        with _remote_errors("upload", f"{self._root}/{name}"):
            self._fs.put_file(str(staged), f"{self._root}/{name}")
            staged.unlink()

    def sync(self) -> None:
        """An upload that was answered is durable; nothing is left to do."""

    def entries(self) -> list[Entry]:
        with _remote_errors("list", self._root):
            try:
                found = self._list()
            except FileNotFoundError:  # a prefix exists once something lies under it
                return []
        return [
            Entry(item["name"].rpartition("/")[2], int(item["size"] or 0), _modified(item))
            for item in found
            if item["type"] == "file"
        ]

    def _list(self) -> list[dict[str, Any]]:
        # fsspec shares one instance, and its cache of listings, among threads: another thread may fill the cache with
        # an older listing after it was invalidated. So the request itself must bypass the cache.
        self._fs.invalidate_cache()
        found: list[dict[str, Any]] = self._fs.ls(self._root, detail=True, **self._bypass)
        return found

    def read(self, name: str) -> pa.Buffer:
        import pyarrow as pa  # noqa: PLC0415

        with _remote_errors("read", f"{self._root}/{name}"):
            return pa.py_buffer(self._fs.cat_file(f"{self._root}/{name}"))

    def delete(self, name: str) -> None:
        with _remote_errors("delete", f"{self._root}/{name}"), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._root}/{name}")


def _cache_bypass(fs: Any) -> dict[str, bool]:
    """Return the arguments with which `ls` asks the store itself; none where its signature allows none."""
    parameters = inspect.signature(getattr(fs, "_ls", fs.ls)).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return {"refresh": True} if open_ended or "refresh" in parameters else {}


def _modified(item: Mapping[str, Any]) -> float:
    # fsspec leaves the name of this field to each file system.
    value = next((item[key] for key in ("LastModified", "mtime", "created", "last_modified") if item.get(key)), None)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return float(value) if value is not None else 0.0
