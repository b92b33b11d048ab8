"""When maintenance happens: one thread per destination looks at the tables in turn."""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import structlog

from ....config.iceberg import MaintenanceConfig
from ....errors import HeadraceError
from ..catalog import Catalog
from ..java import java_errors
from .compaction import Compaction
from .expiry import expire_snapshots
from .held import HeldTable, Stopped
from .orphans import remove_orphans

__all__ = ["Maintenance"]

_log = structlog.get_logger("headrace.destinations.iceberg")

# One call into Java is waited for this long at shutdown; the thread ends with it.
_STOP_S = 30.0
_MS = 1_000


class Maintenance:
    """Looks after the tables from `start` to `stop`. Its errors are logged once per table and kind, no more."""

    def __init__(
        self, catalog: Catalog, settings: MaintenanceConfig, tables: Callable[[], Iterable[HeldTable]]
    ) -> None:
        self._catalog, self._settings, self._tables = catalog, settings, tables
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._snapshots: dict[tuple[str, ...], int | None] = {}
        self._searched: dict[tuple[str, ...], float] = {}
        self._reported: set[tuple[tuple[str, ...], str, str]] = set()

    def start(self) -> None:
        if self._settings.enabled:
            self._thread = threading.Thread(target=self._run, name="headrace-iceberg-maintenance", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """What runs is given up between two row groups."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)
            self._thread = None

    def maintain(self, held: HeldTable) -> None:
        """Everything, now, in this thread. Raises what goes wrong, and `Stopped` after `stop`."""
        for _, step in self._steps(held):
            step()

    def look(self) -> None:
        """One round over the tables: those that were written since the last, and those due for a search for orphans."""
        for held in self._tables():
            with self._reporting(held, "look"):
                if self._is_due(held):
                    self._look_after(held)

    def _run(self) -> None:
        while not self._stopping.wait(self._settings.interval_s):
            with contextlib.suppress(Stopped):
                self.look()

    def _look_after(self, held: HeldTable) -> None:
        self._snapshots[held.name] = _snapshot(held)
        for what, step in self._steps(held):
            if what == "orphans" and not self._is_search_due(held):
                continue
            with self._reporting(held, what):
                step()

    def _steps(self, held: HeldTable) -> list[tuple[str, Callable[[], object]]]:
        return [
            ("compaction", lambda: self._compact(held)),
            ("expiry", lambda: self._expire(held)),
            ("orphans", lambda: self._search(held)),
        ]

    def _compact(self, held: HeldTable) -> None:
        self._going()
        compaction = Compaction.of(self._catalog, held, self._settings)
        groups = 0 if compaction is None else compaction.run(self._going)
        if groups:
            _log.info("table compacted", table=".".join(held.name), groups=groups)

    def _expire(self, held: HeldTable) -> None:
        self._going()
        if held.table is not None:
            expire_snapshots(self._catalog, held.name, self._settings, int(time.time() * _MS))

    def _search(self, held: HeldTable) -> None:
        self._going()
        if held.table is not None:
            # Also when it fails: a search is dear.
            self._searched[held.name] = time.monotonic()
            remove_orphans(self._catalog, held, self._settings, datetime.datetime.now(datetime.timezone.utc))

    def _is_due(self, held: HeldTable) -> bool:
        if held.table is None:
            return False
        return self._is_search_due(held) or self._snapshots.get(held.name) != _snapshot(held)

    def _is_search_due(self, held: HeldTable) -> bool:
        searched = self._searched.get(held.name)
        return searched is None or time.monotonic() - searched >= self._settings.orphan_interval_s

    def _going(self) -> None:
        if self._stopping.is_set():
            raise Stopped

    @contextlib.contextmanager
    def _reporting(self, held: HeldTable, what: str) -> Iterator[None]:
        try:
            yield
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the stream goes on
            self._report(held, what, error)

    def _report(self, held: HeldTable, what: str, error: Exception) -> None:
        kind = held.name, what, type(error).__name__
        # A shutdown that did not wait closes the catalog under a call.
        if self._stopping.is_set() or kind in self._reported:
            return
        self._reported.add(kind)
        detail = (error.message, error.detail) if isinstance(error, HeadraceError) else ()
        _log.warning(
            "maintenance failed; it is tried again", table=".".join(held.name), step=what, error=kind[2], detail=detail
        )


def _snapshot(held: HeldTable) -> int | None:
    """As the stream last saw it: reading that needs no lock and no request."""
    table = held.table
    if table is None:
        return None
    with java_errors(f"look at table {'.'.join(held.name)}"):
        snapshot = table.java_table.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())
