"""Keeping a lake quick to read, beside the stream: inlined rows to files, small files to large ones, old ones gone."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from ...config.duckdb import DuckLakeCatalogType, DuckLakeConfig
from ...errors import DestinationError, DestinationFenced
from .database import Database, Session
from .places import literal

__all__ = ["Maintenance"]

_log = structlog.get_logger("headrace.destinations.ducklake")


class Maintenance:
    """A thread that does a round now and then. Batches wait for one statement of it at most."""

    def __init__(self, database: Database, settings: DuckLakeConfig, check: Callable[[Session], None]) -> None:
        """`check` raises DestinationFenced when another run does the maintenance."""
        self._database, self._settings, self._check = database, settings.maintenance, check
        self._times_as_text = settings.catalog.type is DuckLakeCatalogType.SQLITE
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="ducklake-maintenance", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def maintain(self) -> None:
        """One round, now."""
        lake = literal(self._database.place.name)
        expired = _before(self._settings.snapshot_age_s, as_text=self._times_as_text)
        unneeded = _before(self._settings.retention_s, as_text=self._times_as_text)
        old = _before(self._settings.retention_s)
        ratio = self._settings.deleted_ratio
        for statement in (
            f"CALL ducklake_flush_inlined_data({lake})",
            f"CALL ducklake_rewrite_data_files({lake}, delete_threshold => {ratio})",
            f"CALL ducklake_merge_adjacent_files({lake})",
        ):
            # They write files, which must be kept if the answer to their commit is lost.
            with self._database.transaction("maintain the lake") as session:
                self._check(session)
                session.run(statement)
        for statement in (
            f"CALL ducklake_expire_snapshots({lake}, older_than => {expired})",
            f"CALL ducklake_cleanup_old_files({lake}, older_than => {unneeded})",
            f"CALL ducklake_delete_orphaned_files({lake}, older_than => {old})",
        ):
            with self._database.look("maintain the lake") as session:
                self._check(session)
                session.run(statement)

    def _run(self) -> None:
        while not self._stopping.wait(self._settings.interval_s):
            try:
                self.maintain()
            except DestinationFenced:
                return
            except DestinationError as error:
                _log.warning("maintenance failed; trying again later", error=str(error), hint=error.hint)


def _before(age_s: float, *, as_text: bool = False) -> str:
    """Return the moment before which something is too old, as SQL.

    A SQLite catalog has its times as text, and DuckLake compares them with a text of another form: whatever is of the
    same day counts as older. So it is given the day before: it removes nothing too early, and all of it up to a day
    later.
    """
    moment = f"now() - to_milliseconds({round(age_s * 1000)})"
    return f"date_trunc('day', {moment}) - INTERVAL 1 DAY" if as_text and age_s else moment
