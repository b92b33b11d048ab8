"""What table formats, their catalogs and their stores throw in Spark's JVM, taken back as errors of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from ...errors import (
    DestinationConflict,
    DestinationConnectionFailed,
    DestinationError,
    DestinationRejected,
    RetryPolicy,
)
from ...remedies import is_disk_full, make_room

__all__ = ["CommitStateUnknown", "TableGone", "commit_error", "commit_errors", "java_errors", "may_be_committed"]

_CONFLICTS = frozenset({"CommitFailedException", "ValidationException", "AlreadyExistsException"})
# Errors of a commit request that prove that nothing was committed. They are "cleanable failures" in Iceberg's own
# terms: after them it deletes the manifests that it wrote for the commit.
_NOT_COMMITTED = frozenset(
    {
        "CommitFailedException",
        "ValidationException",
        "NotAuthorizedException",
        "ForbiddenException",
        "BadRequestException",
        "NoSuchTableException",
    }
)
_UNKNOWN = "CommitStateUnknownException"
_REFUSALS = frozenset(
    {
        "NotAuthorizedException",
        "ForbiddenException",
        "BadRequestException",
        "NoSuchWarehouseException",
        "NoSuchBucketException",
    }
)
_DELTA_CONFLICTS = re.compile(r"Concurrent|MetadataChanged|ProtocolChanged")
# How AWS's library tells of wrong keys: by the answer's status, in the text of one exception for all.
_DENIED = re.compile(r"Status Code: 40[13]\b")
# A session or token that was valid before.
_EXPIRED = re.compile(r"\bexpired\b|ExpiredToken", re.IGNORECASE)
# Hive's refusal of a column dropped from between others, which it takes for another type of the next one.
_BY_PLACE = "incompatible with the existing columns in their respective positions"
# Where Hive's client has the reason in its text only.
_NO_METASTORE = "Could not connect to meta store"
_OUTAGES = frozenset(
    {
        "ServiceFailureException",
        "ServiceUnavailableException",
        "RESTException",
        "RuntimeIOException",
        "UncheckedIOException",
        "UncheckedSQLException",
        "ConnectException",
        "UnknownHostException",
        "SocketTimeoutException",
        # AWS's: no answer, or none that it could read.
        "SdkClientException",
        "TTransportException",
    }
)
_NAMED_FILE = re.compile(r"(?:file:|(?<![\w:/]))(/[^\s:()'\"]+)")
_DETAIL = 800
_JVM_GONE = "the Java side of Spark is gone"


class CommitStateUnknown(DestinationConflict):
    """The catalog did not say whether the commit took place: the next look at the table tells."""

    hint = "nothing to do: the next attempt reads from the table whether the commit took place"


class TableGone(DestinationError):
    """Somebody dropped the table."""


@contextmanager
def java_errors(doing: str) -> Iterator[None]:
    """Errors of table formats, catalogs and stores become ours. `doing` completes "cannot …"."""
    try:
        yield
    except Py4JJavaError as error:
        raise _translated(error, f"cannot {doing}") from None
    except PySparkException as error:
        # PySpark makes its own exceptions of some of Java's, an illegal argument say.
        raise DestinationError(f"cannot {doing}", detail=str(error).partition("\n")[0][:_DETAIL]) from None
    except (Py4JError, ConnectionError):
        raise DestinationConnectionFailed(f"cannot {doing}", detail=_JVM_GONE) from None


@contextmanager
def commit_errors(doing: str) -> Iterator[None]:
    """Translate errors of a commit request by `commit_error`. The block must hold the request and nothing else."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, the commit may have taken place
        raise commit_error(error, f"cannot {doing}") from None


def commit_error(error: Exception, message: str) -> DestinationError:
    """Return the error to raise when a commit request failed with `error`.

    It is CommitStateUnknown unless `error` proves that nothing was committed: a lost answer, a refused connection, a
    server's internal error or a dead JVM say nothing about what the catalog has done or is about to do.
    """
    try:
        causes = _short_causes(error) if isinstance(error, Py4JJavaError) else []
    except (Py4JError, ConnectionError):
        # The JVM died before it could name the exception.
        causes = []
    if causes and _proves_no_commit(causes):
        return _error(causes, message)
    if causes:
        return CommitStateUnknown(message, detail=_described(causes), hint=_room(causes))
    gone = isinstance(error, (Py4JError, ConnectionError))
    return CommitStateUnknown(message, detail=_JVM_GONE if gone else type(error).__name__)


def may_be_committed(error: BaseException) -> bool:
    """Whether files written for a commit that ended with `error` may be in the table.

    Also after an interrupt, which may have come at any moment.
    """
    return isinstance(error, CommitStateUnknown) or not isinstance(error, Exception)


def _proves_no_commit(causes: Sequence[tuple[str, str]]) -> bool:
    names = [name for name, _ in causes]
    # Hive's metastore checks an alteration before it does anything.
    refused = any(_BY_PLACE in text for _, text in causes)
    return refused or (names[0] in _NOT_COMMITTED and _UNKNOWN not in names)


def _translated(error: Py4JJavaError, message: str) -> DestinationError:
    try:
        causes = _short_causes(error)
    except (Py4JError, ConnectionError):
        return DestinationConnectionFailed(message, detail=_JVM_GONE)
    return _error(causes, message)


def _short_causes(error: Py4JJavaError) -> list[tuple[str, str]]:
    return [(name.rpartition(".")[2], text) for name, text in _causes(error.java_exception)]


def _described(causes: Sequence[tuple[str, str]]) -> str:
    # Their messages name files, tables and requests, never rows.
    return "; ".join(f"{name}: {text}" if text else name for name, text in causes)[:_DETAIL]


def _error(causes: Sequence[tuple[str, str]], message: str) -> DestinationError:
    short, detail = [name for name, _ in causes], _described(causes)
    if any(_BY_PLACE in text for _, text in causes):
        hint = "set hive.metastore.disallow.incompatible.col.type.changes to false at the metastore: Iceberg needs it"
        return DestinationRejected(message, detail=detail, hint=hint)
    room = _room(causes)
    if _UNKNOWN in short:
        return CommitStateUnknown(message, detail=detail, hint=room)
    if short[0] == "NoSuchTableException":
        return TableGone(message, detail=detail)
    if short[0] in _CONFLICTS or _DELTA_CONFLICTS.search(short[0]):
        return DestinationConflict(message, detail=detail)
    if not _REFUSALS.isdisjoint(short) or any(_DENIED.search(text) for _, text in causes):
        if any(_EXPIRED.search(text) for _, text in causes):
            hint = "renew the credentials of the catalog and of the storage: the next attempt uses them"
            return DestinationRejected(message, detail=detail, hint=hint, retry=RetryPolicy.TIMED)
        hint = "check the address, warehouse and credentials of the catalog and of the storage"
        return DestinationRejected(message, detail=detail, hint=hint)
    if not _OUTAGES.isdisjoint(short) or any(_NO_METASTORE in text for _, text in causes):
        return DestinationConnectionFailed(message, detail=detail, hint=room)
    return DestinationError(message, detail=detail, hint=room)


def _room(causes: Sequence[tuple[str, str]]) -> str | None:
    """Return what to do where the causes say that a disk is full."""
    if not any(is_disk_full(text) for _, text in causes):
        return None
    files = _NAMED_FILE.findall(" ".join(text for _, text in causes))
    return make_room(files[0]) if files else "free space on the disk of the warehouse, or enlarge it"


def _causes(exception: Any) -> Iterator[tuple[str, str]]:
    for _ in range(5):
        if exception is None:
            return
        text = exception.getMessage() or ""
        yield exception.getClass().getName(), text.partition("\n")[0]
        exception = exception.getCause()
