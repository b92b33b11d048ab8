"""Tells an observer how long each call of a destination took and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ..errors import HeadraceError
from ..schema import TableName
from .around import Around
from .contract import Destination

__all__ = ["DestinationCall", "Instrumented", "WriteObserver"]

_Result = TypeVar("_Result")

_NOT_OURS = "unknown"


@dataclass(frozen=True, slots=True)
class DestinationCall:
    """One call that ended. `error` is None after success, else the error's kind ("unknown" for foreign ones)."""

    destination: str
    method: str
    table: TableName | None
    seconds: float
    error: str | None


class WriteObserver(Protocol):
    """Takes notice of calls, from several threads at once. It must not raise: a write would look failed."""

    def __call__(self, call: DestinationCall) -> None: ...


class Instrumented(Around):
    """Wraps a destination; results and errors pass through unchanged."""

    def __init__(
        self, destination: Destination, observe: WriteObserver, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(destination, self._measured)
        self._observe = observe
        self._clock = clock

    def _measured(self, method: str, table: TableName | None, call: Callable[[], _Result]) -> _Result:
        start = self._clock()
        kind: str | None = None
        try:
            return call()
        except BaseException as error:
            kind = error.kind if isinstance(error, HeadraceError) else _NOT_OURS
            raise
        finally:
            self._observe(DestinationCall(self.name, method, table, self._clock() - start, kind))
