"""What table formats, their catalogs and their stores throw in Spark's JVM, taken back as errors of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from ...errors import DestinationConflict, DestinationConnectionFailed, DestinationError, DestinationRejected

__all__ = ["CommitStateUnknown", "TableGone", "java_errors"]

_CONFLICTS = frozenset({"CommitFailedException", "ValidationException", "AlreadyExistsException"})
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
_DETAIL = 800


class CommitStateUnknown(DestinationConflict):
    """The catalog did not say whether the commit took place: the next look at the table tells."""


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
    except Py4JError:
        raise DestinationConnectionFailed(f"cannot {doing}", detail="the Java side of Spark is gone") from None


def _translated(error: Py4JJavaError, message: str) -> DestinationError:
    causes = [(name.rpartition(".")[2], text) for name, text in _causes(error.java_exception)]
    short = [name for name, _ in causes]
    # Their messages name files, tables and requests, never rows.
    detail = "; ".join(f"{name}: {text}" if text else name for name, text in causes)[:_DETAIL]
    if any(_BY_PLACE in text for _, text in causes):
        hint = "set hive.metastore.disallow.incompatible.col.type.changes to false at the metastore: Iceberg needs it"
        return DestinationRejected(message, detail=detail, hint=hint)
    if "CommitStateUnknownException" in short:
        return CommitStateUnknown(message, detail=detail)
    if short[0] == "NoSuchTableException":
        return TableGone(message, detail=detail)
    if short[0] in _CONFLICTS or _DELTA_CONFLICTS.search(short[0]):
        return DestinationConflict(message, detail=detail)
    if not _REFUSALS.isdisjoint(short) or any(_DENIED.search(text) for _, text in causes):
        hint = "check the address, warehouse and credentials of the catalog and of the storage"
        return DestinationRejected(message, detail=detail, hint=hint)
    if not _OUTAGES.isdisjoint(short) or any(_NO_METASTORE in text for _, text in causes):
        return DestinationConnectionFailed(message, detail=detail)
    return DestinationError(message, detail=detail)


def _causes(exception: Any) -> Iterator[tuple[str, str]]:
    for _ in range(5):
        if exception is None:
            return
        text = exception.getMessage() or ""
        yield exception.getClass().getName(), text.partition("\n")[0]
        exception = exception.getCause()
