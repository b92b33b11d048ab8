"""Delta's library in Spark's JVM: the log of a table, its state as JSON, and commits, for which no Spark job runs.

Delta finds out by itself what a version holds when a checksum file lies beside it, and it writes one as long as an
operation says what it did: hence `StreamingUpdate`, and not `ManualUpdate`, after which it would count all files anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaPackage
from pyspark.errors import PySparkException

from ...errors import ConfigError, DestinationConflict, DestinationRejected, SparkUnavailable
from ..lake.java_errors import java_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PACKAGES", "SPARK_CONF", "Commit", "DeltaJava", "delta_errors"]

PACKAGES = ("io.delta:delta-spark_4.1_2.13:4.4.0",)
"""The jars, by Maven coordinates."""
SPARK_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The state of a table is put together in so many tasks. Delta's own 50 are for logs of millions of files.
    "spark.databricks.delta.snapshotPartitions": "2",
}
_CONFLICTS = ("CONCURRENT", "METADATA_CHANGED", "PROTOCOL_CHANGED")
_DETAIL = 800


@dataclass(frozen=True, slots=True)
class Commit:
    """What belongs to a commit beside its actions."""

    marker: str
    """By which the commit is recognised, should nobody say whether it took place."""
    application: str | None = None
    """Whose record it changes: two who do so at once are in conflict."""
    metadata: Mapping[str, Any] | None = None
    is_new: bool = False


class DeltaJava:
    """Delta's classes, and Scala's in which they take their arguments."""

    def __init__(self, spark: SparkSession | Any) -> None:
        if spark._jvm is None:
            msg = "the Spark session was stopped"
            raise SparkUnavailable(msg, hint="start another, and the pipeline with it")
        self.spark = spark
        self._jvm: Any = spark._jvm
        delta: Any = self._jvm.org.apache.spark.sql.delta
        if isinstance(delta.DeltaLog, JavaPackage):
            raise ConfigError(
                "the Spark session has no Delta",
                hint=f"start it with spark.jars.packages={','.join(PACKAGES)}, or let Headrace start its own session",
            )
        # Each word of a class's name is a question to the JVM: what every commit uses is asked for once.
        self._logs: Any = delta.DeltaLog
        self._actions: Any = delta.actions.Action
        self._streaming: Any = getattr(delta, "DeltaOperations$StreamingUpdate")
        self._append: Any = self._jvm.org.apache.spark.sql.streaming.OutputMode.Append()
        self._some: Any = self._jvm.scala.Some
        self._none: Any = self._jvm.scala.Option.empty()
        self._sequences: Any = self._jvm.scala.jdk.javaapi.CollectionConverters
        self._lists: Any = self._jvm.java.util.ArrayList
        self._strings: Any = self._jvm.java.lang.String
        self._paths: Any = self._jvm.org.apache.hadoop.fs.Path

    def log(self, location: str) -> Any:
        """The log of a table, which may not be there."""
        return self._logs.forTable(self.spark._jsparkSession, location)

    def forget(self, location: str) -> None:
        """Before another table comes to this place."""
        self._logs.invalidateCache(self.spark._jsparkSession, self._paths(location))

    def path(self, location: str) -> Any:
        return self._paths(location)

    def file_system(self, location: str) -> Any:
        return self._paths(location).getFileSystem(self.spark._jsc.hadoopConfiguration())

    def updated(self, log: Any) -> Any:
        """The table's newest snapshot."""
        return log.update(False, self._none, self._none)

    def files(self, snapshot: Any) -> list[dict[str, Any]]:
        """All files of a snapshot, as its log has them."""
        self._activate()
        return [json.loads(line) for line in self._lines(snapshot.allFiles())]

    def removed(self, snapshot: Any) -> list[dict[str, Any]]:
        """Files that are in the table no more and that older versions name: their paths and deletion vectors."""
        gateway: Any = self.spark.sparkContext._gateway
        wanted = gateway.new_array(self._strings, 2)
        wanted[0], wanted[1] = "path", "deletionVector"
        return [json.loads(line) for line in self._lines(snapshot.tombstones().selectExpr(wanted))]

    def transaction(self, snapshot: Any, application: str) -> int | None:
        """The version that an application has on record."""
        found = snapshot.transactions().get(application)
        return int(found.get()) if found.isDefined() else None

    def commit(self, log: Any, snapshot: Any, actions: Sequence[Mapping[str, Any]], commit: Commit) -> int:
        """One version more, on top of `snapshot` or of what others committed since and that does not matter."""
        transaction = log.startTransaction(self._none, self._some(snapshot))
        if commit.application is not None:
            transaction.readTxn().addOne(commit.application)
        if commit.metadata is not None:
            metadata = self._actions.fromJson(json.dumps({"metaData": commit.metadata}, ensure_ascii=False))
            if commit.is_new:
                transaction.updateMetadataForNewTable(metadata)
            else:
                transaction.updateMetadata(metadata, False)
        made = self._lists()
        for action in actions:
            made.add(self._actions.fromJson(json.dumps(action, ensure_ascii=False)))
        operation = self._streaming(self._append, "headrace", 0, self._some(commit.marker))
        return int(transaction.commit(self._sequences.asScala(made).toSeq(), operation))

    def _activate(self) -> None:
        """Make the session that of this thread, which Delta's own queries need."""
        self.spark._get_j_spark_session_class(self._jvm).setActiveSession(self.spark._jsparkSession)

    def _lines(self, dataset: Any) -> list[str]:
        lines = dataset.toJSON().collectAsList()
        return str(self._strings.join("\n", lines)).split("\n") if lines.size() else []


@contextmanager
def delta_errors(doing: str) -> Iterator[None]:
    """Errors of Delta become ours. `doing` completes "cannot …"."""
    with java_errors(doing):
        try:
            yield
        except PySparkException as error:
            # Delta's own messages name files, tables and columns, never rows.
            text = str(error).partition("\n")[0][:_DETAIL]
            if any(word in text for word in _CONFLICTS):
                raise DestinationConflict(f"cannot {doing}", detail=text) from None
            raise DestinationRejected(f"cannot {doing}", detail=text) from None
