"""What DuckDB raises, as errors of Headrace. Messages that may quote a value are left out, secrets are taken out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import duckdb

from ...errors import (
    DestinationConflict,
    DestinationConnectionFailed,
    DestinationError,
    DestinationRejected,
    HeadraceError,
    RetryPolicy,
    SparkError,
)
from ...remedies import RESYNC, make_room
from ...schema import ReplicatedTableSchema
from ..translated import translated

__all__ = ["blamed", "failure", "is_broken", "is_locked"]

_NO_SPACE = "No space left on device"
_DAMAGED = ("Corrupt database file", "Corrupt WAL file", "Could not read enough bytes")
_NAMED_FILE = re.compile(r"[\"']?(/[^\"':]+)")
_LOCKED = "Could not set lock"
_ATTACHED = "Unique file handle conflict"
# These speak of names, files and hosts. All others may quote what was in a row.
_TELLING = (
    duckdb.IOException,
    duckdb.CatalogException,
    duckdb.BinderException,
    duckdb.TransactionException,
    duckdb.PermissionException,
    duckdb.ConnectionException,
    duckdb.OutOfMemoryException,
    duckdb.FatalException,
)
# Not one table's fault: another would meet the same.
_OF_ALL = (
    duckdb.IOException,
    duckdb.TransactionException,
    duckdb.ConnectionException,
    duckdb.OutOfMemoryException,
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.InterruptException,
    SparkError,
)


def is_locked(error: duckdb.Error) -> bool:
    """Whether another process has the file, or another destination in this one."""
    return (isinstance(error, duckdb.IOException) and _LOCKED in str(error)) or (
        isinstance(error, duckdb.BinderException) and _ATTACHED in str(error)
    )


def is_broken(error: BaseException) -> bool:
    """Whether the connection is of no use any more."""
    return isinstance(error, duckdb.FatalException | duckdb.ConnectionException | duckdb.InternalException)


def failure(error: duckdb.Error, doing: str, secrets: Collection[str] = ()) -> DestinationError:
    """The error of Headrace for one of DuckDB's, met while `doing`."""
    detail = type(error).__name__
    if isinstance(error, _TELLING):
        detail = f"{detail}: {_without(str(error), secrets)}"
    message = f"DuckDB failed to {doing}"
    if is_locked(error):
        hint = "close it there (the detail has the process); one process at a time may have the file open to write"
        return DestinationConflict(f"another process has the database open, to {doing}", detail=detail, hint=hint)
    if _NO_SPACE in str(error):
        files = _NAMED_FILE.findall(str(error))
        hint = "free space on the disk that the detail names, or enlarge it: the pipeline then continues by itself"
        hint = make_room(files[0]) if files else hint
        return DestinationError(message, detail=f"{type(error).__name__}: {_without(str(error), secrets)}", hint=hint)
    if any(words in str(error) for words in _DAMAGED):
        hint = (
            "restore the file from a backup; without one, move it away, with its .wal file: the next start makes a new "
            "one and copies all tables again"
        )
        return DestinationError(
            f"the database is damaged: {message}", detail=detail, hint=hint, retry=RetryPolicy.MANUAL
        )
    if isinstance(error, duckdb.TransactionException):
        return DestinationConflict(message, detail=detail)
    if isinstance(error, duckdb.OutOfMemoryException):
        hint = "raise destination.engine.memory_limit, or lower batch.max_bytes"
        return DestinationError(message, detail=detail, hint=hint)
    if isinstance(error, duckdb.HTTPException) or is_broken(error):
        return DestinationConnectionFailed(message, detail=detail)
    if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
        return DestinationRejected(message, detail=detail)
    return DestinationError(message, detail=detail)


@contextmanager
def blamed(source: ReplicatedTableSchema, secrets: Collection[str] = ()) -> Iterator[None]:
    """What fails inside, and is this table's own fault, says so: the others go on without it."""
    try:
        yield
    except _OF_ALL:
        raise
    except duckdb.Error as error:
        found = failure(error, f"write table {source.table.name}", secrets)
        if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
            found.hint = f"somebody else dropped or altered the table, or a column of it; copy it again: {RESYNC}"
        found.table_id = source.table.id
        raise found from None
    except HeadraceError as error:
        # Whatever kind of error it is: the pipeline asks every one for it.
        error.table_id = source.table.id  # type: ignore[attr-defined]
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the other tables
        found = translated(error, f"the changes of table {source.table.name} could not be read")
        found.table_id = source.table.id
        raise found from None


def _without(text: str, secrets: Collection[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "…")
    return " ".join(text.split())
