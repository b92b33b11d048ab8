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
