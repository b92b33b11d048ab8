"""Turns what a destination raises into errors of Headrace, without the text of foreign messages: they quote values."""

from __future__ import annotations

import concurrent.futures
import errno
from collections.abc import Callable
from typing import TypeVar

from ..errors import DestinationConnectionFailed, DestinationError, DestinationTimeout, HeadraceError
from ..remedies import is_disk_full, make_room, places
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
    hint = make_room(error.filename) if isinstance(error, OSError) and error.filename and is_disk_full(error) else None
    return DestinationError(message, detail=detail, hint=hint)


def _place(error: Exception) -> str:
    """Where it was raised, for want of a message that may be shown."""
    place = places(error, 1)
    return f" at {place}" if place else ""
