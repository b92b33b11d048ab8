"""When maintenance happens: one thread per destination looks at the tables in turn."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import structlog

from ....errors import DestinationFenced, HeadraceError
from .held import HeldTable, Stopped

__all__ = ["Schedule", "Upkeep"]

_log = structlog.get_logger("headrace.destinations")

# One call into Java is waited for this long at shutdown; the thread ends with it.
_STOP_S = 30.0


class Upkeep(Protocol):
    """What is done to a table, of whichever format."""

    enabled: bool
    interval_s: float
    search_interval_s: float
    """Between two searches for files that nobody names."""

    def version(self, held: HeldTable) -> int | None:
        """As the stream last saw it: reading that needs no lock and no request."""

    def compact(self, held: HeldTable, going: Callable[[], None]) -> int:
        """Write files anew; `going` is called often and raises to end it. Returns how many groups of files it was."""

    def expire(self, held: HeldTable) -> object: ...

    def search(self, held: HeldTable) -> object: ...


class Schedule:
    """Looks after the tables from `start` to `stop`. Its errors are logged once per table and kind, no more."""

    def __init__(self, upkeep: Upkeep, tables: Callable[[], Iterable[HeldTable]]) -> None:
        self._upkeep, self._tables = upkeep, tables
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._snapshots: dict[tuple[str, ...], int | None] = {}
        self._searched: dict[tuple[str, ...], float] = {}
        self._reported: set[tuple[tuple[str, ...], str, str]] = set()
        self._check: Callable[[], None] = lambda: None
        # One step at a time: a snapshot that another thread has expired meanwhile cannot be expired once more.
        self._working = threading.Lock()

    def start(self, check: Callable[[], None]) -> None:
        """Look at the tables from now on. `check` raises DestinationFenced when another run has replaced this one."""
        self._check = check
        if self._upkeep.enabled:
            self._thread = threading.Thread(target=self._run, name="headrace-maintenance", daemon=True)
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
            with self._working:
                step()

    def look(self) -> None:
        """One round over the tables: those that were written since the last, and those due for a search for orphans.

        Raises DestinationFenced when another run has replaced this one.
        """
        for held in self._tables():
            with self._reporting(held, "look"):
                if self._is_due(held):
                    self._look_after(held)

    def _run(self) -> None:
        while not self._stopping.wait(self._upkeep.interval_s):
            try:
                self.look()
            except Stopped:
                continue
            except DestinationFenced as error:
                _log.warning("another run has taken over; maintenance ends", detail=error.detail)
                return

    def _look_after(self, held: HeldTable) -> None:
        self._snapshots[held.name] = self._upkeep.version(held)
        for what, step in self._steps(held):
            if what == "orphans" and not self._is_search_due(held):
                continue
            with self._reporting(held, what), self._working:
                self._check()
                step()

    def _steps(self, held: HeldTable) -> list[tuple[str, Callable[[], object]]]:
        return [
            ("compaction", lambda: self._compact(held)),
            ("expiry", lambda: self._expire(held)),
            ("orphans", lambda: self._search(held)),
        ]

    def _compact(self, held: HeldTable) -> None:
        self._going()
        groups = self._upkeep.compact(held, self._going)
        if groups:
            _log.info("table compacted", table=".".join(held.name), groups=groups)

    def _expire(self, held: HeldTable) -> None:
        self._going()
        if held.table is not None:
            self._upkeep.expire(held)

    def _search(self, held: HeldTable) -> None:
        self._going()
        if held.table is not None:
            # Also when it fails: a search is dear.
            self._searched[held.name] = time.monotonic()
            self._upkeep.search(held)

    def _is_due(self, held: HeldTable) -> bool:
        if held.table is None:
            return False
        return self._is_search_due(held) or self._snapshots.get(held.name) != self._upkeep.version(held)

    def _is_search_due(self, held: HeldTable) -> bool:
        searched = self._searched.get(held.name)
        return searched is None or time.monotonic() - searched >= self._upkeep.search_interval_s

    def _going(self) -> None:
        if self._stopping.is_set():
            raise Stopped

    @contextlib.contextmanager
    def _reporting(self, held: HeldTable, what: str) -> Iterator[None]:
        try:
            yield
        except (Stopped, DestinationFenced):
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
