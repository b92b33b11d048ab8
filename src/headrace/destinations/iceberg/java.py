"""Iceberg's Java library, reached through Spark's JVM: values handed over, errors taken back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaPackage, is_instance_of
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from ...errors import (
    ConfigError,
    DestinationConflict,
    DestinationConnectionFailed,
    DestinationError,
    DestinationRejected,
    SparkUnavailable,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PACKAGES", "CommitStateUnknown", "Java", "TableGone", "java_errors"]

VERSION = "1.12.0"
PACKAGES = (f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{VERSION}",)
"""The jars, by Maven coordinates, that every catalog needs."""

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


class Java:
    """Iceberg's classes, and Java's own in which they take their arguments."""

    def __init__(self, spark: SparkSession | Any) -> None:
        if spark._jvm is None:
            msg = "the Spark session was stopped"
            raise SparkUnavailable(msg, hint="start another, and the pipeline with it")
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self.hadoop: Any = self._jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
        # Hadoop's usual way to local files writes a checksum file beside each: twice the files, and slower commits.
        self.hadoop.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
        self.hadoop.set("fs.file.impl.disable.cache", "true")
        self.iceberg: Any = self._jvm.org.apache.iceberg
        if isinstance(self.iceberg.CatalogUtil, JavaPackage):
            raise ConfigError(
                "the Spark session has no Iceberg",
                hint=f"start it with spark.jars.packages={','.join(PACKAGES)}, or let Headrace start its own session",
            )
        self._mapper: Any = self.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
        # Each word of a class's name is a question to the JVM: what every commit uses is asked for once.
        self._content_files: Any = self.iceberg.ContentFileParser
        self._scan_responses: Any = self.iceberg.rest.TableScanResponseParser

    def map(self, values: Mapping[str, str]) -> Any:
        result = self._jvm.java.util.HashMap()
        for name, value in values.items():
            result.put(name, value)
        return result

    def list_of(self, iterable: Any) -> Any:
        """A Java list of a Java iterable, which is closed."""
        try:
            return self.iceberg.relocated.com.google.common.collect.Lists.newArrayList(iterable)
        finally:
            iterable.close()

    def list_from(self, values: Sequence[str]) -> Any:
        result = self._jvm.java.util.ArrayList()
        for value in values:
            result.add(value)
        return result

    def strings(self, values: Sequence[str]) -> Any:
        result = self._gateway.new_array(self._jvm.java.lang.String, len(values))
        for index, value in enumerate(values):
            result[index] = value
        return result

    def close(self, thing: Any) -> None:
        """Close what can be closed."""
        if is_instance_of(self._gateway, thing, "java.io.Closeable"):
            thing.close()

    def mapping(self, values: Any) -> dict[str, str]:
        """A Java map of texts, in one call instead of several for each entry."""
        return dict(json.loads(self._mapper.writeValueAsString(values)))

    def content_file(self, description: str, specs: Any) -> Any:
        """A DataFile or DeleteFile from its description."""
        return self._content_files.fromJson(self._mapper.readTree(description), specs)

    def delete_files(self, descriptions: Sequence[str], specs: Any) -> Iterator[Any]:
        """DeleteFiles from their descriptions: a batch of scattered changes has one for every data file."""
        if descriptions:
            answer = self._mapper.readTree(f'{{"delete-files": [{",".join(descriptions)}]}}')
            files = self._scan_responses.parseDeleteFiles(answer, specs)
            yield from (files.get(index) for index in range(len(descriptions)))


@contextmanager
def java_errors(doing: str) -> Iterator[None]:
    """Errors of Iceberg and its catalogs become ours. `doing` completes "cannot …"."""
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
    # Iceberg's own messages name files, tables and requests, never rows.
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
