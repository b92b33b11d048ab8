"""Iceberg's Java library, reached through Spark's JVM: values handed over and taken back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaPackage, is_instance_of

from ...errors import ConfigError, SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PACKAGES", "Java"]

VERSION = "1.12.0"
PACKAGES = (f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{VERSION}",)
"""The jars, by Maven coordinates, that every catalog needs."""


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
        self._following: _Following | None = None

    def follows(self, snapshot: int | None) -> Any:
        """A SnapshotAncestryValidator that lets a commit through only on top of this snapshot; None: of no snapshot."""
        if self._following is None:
            self._following = _Following(self._jvm, self._mapper.getClass().getClassLoader(), self._gateway)
        return self._following.validator(snapshot)

    def remove_files(self, io: Any, paths: Sequence[str]) -> None:
        """Delete files by a Java FileIO, many in one request where it can. Those that are gone already are no error."""
        if not paths:
            return
        if is_instance_of(self._gateway, io, "org.apache.iceberg.io.SupportsBulkOperations"):
            kind = self._jvm.java.lang.Class.forName("java.util.ArrayList")
            io.deleteFiles(self._mapper.readValue(json.dumps(paths), kind))
        else:
            for path in paths:
                io.deleteFile(path)

    def unused_manifests(self, transaction: Any) -> list[str]:
        """Return the manifests that a transaction wrote and no snapshot of it refers to.

        Iceberg keeps their paths to itself until `commitTransaction` deletes them.
        """
        kept = transaction.getClass().getDeclaredField("deletedFiles")
        kept.setAccessible(True)
        paths = set(self.texts(kept.get(transaction)))
        if not paths:
            return []
        table, known = transaction.table(), {one.snapshotId() for one in transaction.startMetadata().snapshots()}
        for snapshot in table.snapshots():
            if snapshot.snapshotId() not in known:
                paths -= {manifest.path() for manifest in snapshot.allManifests(table.io())}
        return sorted(paths)

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

    def texts(self, values: Any) -> list[str]:
        """A Java list of texts, in one call. As JSON: a path may hold whatever would be put between them."""
        return list(json.loads(self._mapper.writeValueAsString(values)))

    def content_file(self, description: str, specs: Any) -> Any:
        """A DataFile or DeleteFile from its description."""
        return self._content_files.fromJson(self._mapper.readTree(description), specs)

    def delete_files(self, descriptions: Sequence[str], specs: Any) -> Iterator[Any]:
        """DeleteFiles from their descriptions: a batch of scattered changes has one for every data file."""
        if descriptions:
            answer = self._mapper.readTree(f'{{"delete-files": [{",".join(descriptions)}]}}')
            files = self._scan_responses.parseDeleteFiles(answer, specs)
            yield from (files.get(index) for index in range(len(descriptions)))


class _Following:
    """Makes validators of Java's own method handles: one implemented in Python would need a callback server."""

    def __init__(self, jvm: Any, loader: Any, gateway: Any) -> None:
        self._invoke, self._predicates = jvm.java.lang.invoke, jvm.java.util.function.Predicate

        def named(name: str) -> Any:
            return jvm.java.lang.Class.forName(name, True, loader)

        def signature(text: str) -> Any:
            return self._invoke.MethodType.fromMethodDescriptorString(text, loader)

        lookup, handles = self._invoke.MethodHandles.publicLookup(), self._invoke.MethodHandles
        iterables = named("org.apache.iceberg.relocated.com.google.common.collect.Iterables")
        snapshot = named("org.apache.iceberg.Snapshot")
        self._interface = named("org.apache.iceberg.SnapshotAncestryValidator")
        self._empty = lookup.findStatic(iterables, "isEmpty", signature("(Ljava/lang/Iterable;)Z"))
        first = lookup.findStatic(
            iterables, "getFirst", signature("(Ljava/lang/Iterable;Ljava/lang/Object;)Ljava/lang/Object;")
        )
        # The first ancestor is the snapshot that the commit would stand on.
        first = handles.insertArguments(first, 1, gateway.new_array(jvm.java.lang.Object, 1))
        first = first.asType(signature("(Ljava/lang/Iterable;)Lorg/apache/iceberg/Snapshot;"))
        number = lookup.findVirtual(snapshot, "snapshotId", signature("()J"))
        text = lookup.findStatic(named("java.lang.String"), "valueOf", signature("(J)Ljava/lang/String;"))
        self._parent = handles.filterReturnValue(handles.filterReturnValue(first, number), text)
        equal = lookup.findVirtual(named("java.util.function.Predicate"), "test", signature("(Ljava/lang/Object;)Z"))
        self._equal = equal.asType(signature("(Ljava/util/function/Predicate;Ljava/lang/String;)Z"))

    def validator(self, snapshot: int | None) -> Any:
        handle = self._empty
        if snapshot is not None:
            equal = self._equal.bindTo(self._predicates.isEqual(str(snapshot)))
            handle = self._invoke.MethodHandles.filterReturnValue(self._parent, equal)
        return self._invoke.MethodHandleProxies.asInterfaceInstance(self._interface, handle)
