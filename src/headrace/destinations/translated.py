"""Turns what a destination raises into errors of Headrace, without the text of foreign messages: they quote values."""

from __future__ import annotations

import concurrent.futures
import errno
import traceback
from collections.abc import Callable
from pathlib import PurePath
from typing import TypeVar

from ..errors import DestinationConnectionFailed, DestinationError, DestinationTimeout, HeadraceError
from ..schema import TableName
from .around import Around
from .contract import Destination

__all__ = ["Translated", "translated"]

_Result = TypeVar("_Result")

# Until Python 3.11 a timeout of concurrent.futures is not the built-in one.
_TIMEOUTS = (TimeoutError, concurrent.futures.TimeoutError)
_OF_FILES = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EISDIR, errno.ENOTDIR}
)


class Translated(Around):
    """Wraps a destination; put it innermost, so that the other wrappers see errors of Headrace only."""

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination, self._translated)

    def _translated(self, method: str, table: TableName | None, call: Callable[[], _Result]) -> _Result:
        try:
            return call()
        except HeadraceError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a destination raises must become one of ours
            doing = f"{method} of {table}" if table else method
            # Not as a cause: what the message quotes would be logged with it.
            raise translated(error, f"destination {self.name} failed in {doing}") from None


def translated(error: Exception, message: str) -> DestinationError:
    """The error of Headrace for a foreign one."""
    detail = f"{type(error).__qualname__}{_place(error)}"
    if isinstance(error, OSError):
        detail = f"{detail}: {error}"
    if isinstance(error, _TIMEOUTS):
        return DestinationTimeout(message, detail=detail)
    if isinstance(error, OSError) and error.errno not in _OF_FILES:
        return DestinationConnectionFailed(message, detail=detail)
    return DestinationError(message, detail=detail)


def _place(error: Exception) -> str:
    """Where it was raised, for want of a message that may be shown."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" in {PurePath(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""
