"""One warehouse and one warm Spark for a whole run: what we write, and beside it, by Spark itself, what a peer does."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.config.destination import DestinationConfig
from headrace.config.pipeline import PipelineConfig
from headrace.config.spark import SparkConfig
from headrace.pipeline import Pipeline
from headrace.pipeline.build import build_destination, spark_config
from headrace.postgres.conninfo import parse_conninfo
from headrace.spark.session import build_session
from headrace.stores import MemoryStore
from headrace.testing import PostgresServer
from waiting import until_ready

__all__ = ["PEER", "KeyRange", "Lakehouse", "open_lakehouse", "streaming"]

PEER = "peer"
"""The catalog, in Spark, of the tables that Spark writes: of the same kind as ours, in a file of its own."""

JDBC_DRIVER = "org.postgresql:postgresql:42.7.14"
# Rows per round trip: the driver's default is the whole result at once, which no table of size survives.
JDBC_FETCH_ROWS = 10_000
SERVER_SETTINGS = {"max_wal_size": "16GB", "shared_buffers": "1GB"}
PEER_PROPERTIES = {
    "format-version": "3",
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
}


@dataclass(frozen=True, slots=True)
class KeyRange:
    """An integer column that a table is cut by, and between which values it lies."""

    column: str
    low: int
    high: int


@dataclass(frozen=True)
class Lakehouse:
    """Where a run's tables are: `ours` and the peer's, by namespace."""

    spark: SparkSession
    root: Path
    server: PostgresServer
    """A source for all parts that need nothing special; each takes a database of its own."""
    pipelines: dict[tuple[str, str], int] = field(default_factory=dict)
    """The pipeline id of each database and namespace: a catalog refuses an id that another database has."""

    @property
    def catalog_file(self) -> Path:
        return self.root / "ours" / "catalog.db"

    def config(self, conninfo: str, namespace: str, **settings: Any) -> PipelineConfig:
        """A pipeline of the publication `bench` into a namespace of the warehouse."""
        pipeline_id = self.pipelines.setdefault((conninfo, namespace), len(self.pipelines) + 1)
        return _config(self.root, {"id": pipeline_id, "pg_connection": parse_conninfo(conninfo), **settings}, namespace)

    def pipeline(self, config: PipelineConfig, store: MemoryStore | None = None) -> Pipeline:
        return Pipeline(config, store or MemoryStore(), build_destination(config), spark=self.spark)

    @cached_property
    def _reader(self) -> Catalog:
        return load_catalog("headrace", type="sql", uri=f"sqlite:///{self.catalog_file}", warehouse=f"{self.root}/ours")

    def close(self) -> None:
        if "_reader" in vars(self):
            self._reader.close()

    def count(self, namespace: str, table: str) -> int:
        """How many rows a table of ours has, by another reader than ours."""
        return int(self._reader.load_table((namespace, table)).scan().count())

    def forget(self, namespace: str) -> None:
        """Free the disk, and the names of ours."""
        if self._reader.namespace_exists(namespace):
            for name in self._reader.list_tables(namespace):
                self._reader.drop_table(name)
            # A new pipeline looks through all there are for tables of its own: rounds must not slow down the next.
            self._reader.drop_namespace(namespace)
        for root in ("ours", PEER):
            shutil.rmtree(self.root / root / namespace, ignore_errors=True)

    def read_by_jdbc(self, conninfo: str, table: str, key: KeyRange, partitions: int) -> DataFrame:
        """Spark's own reader, in equal ranges of a key column."""
        source = parse_conninfo(conninfo)
        assert source.password is not None
        options = {
            "url": f"jdbc:postgresql://{source.host}:{source.port}/{source.name}",
            "driver": "org.postgresql.Driver",
            "user": source.username,
            "password": source.password.get_secret_value(),
            "dbtable": table,
            "fetchsize": JDBC_FETCH_ROWS,
            "partitionColumn": key.column,
            "lowerBound": key.low,
            "upperBound": key.high,
            "numPartitions": partitions,
        }
        return self.spark.read.format("jdbc").options(**options).load()

    def create_peer_namespace(self, namespace: str) -> None:
        """Apart from its tables: Iceberg's catalog fails where two threads create one at once."""
        self.spark.sql(f"CREATE NAMESPACE {PEER}.{namespace}")

    def create_peer_table(self, namespace: str, table: str, schema: StructType) -> str:
        name = f"{PEER}.{namespace}.{table}"
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema)
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in PEER_PROPERTIES.items())
        self.spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg TBLPROPERTIES ({properties})")
        return name


def _config(root: Path, settings: dict[str, Any], namespace: str = "{schema}") -> PipelineConfig:
    merged = {
        "id": 1,
        "publication_name": "bench",
        "data_dir": root / "data" / namespace,
        "destination": {"kind": "iceberg", "warehouse": str(root / "ours"), "namespace": namespace},
        **settings,
    }
    return PipelineConfig.model_validate(merged)


def _spark_for(config: PipelineConfig, other: dict[str, Any]) -> SparkConfig:
    """What Spark needs for both destinations."""
    first = spark_config(config, build_destination(config))
    both = config.model_copy(update={"spark": first, "destination": DestinationConfig.model_validate(other)})
    return spark_config(both, build_destination(both))


@contextmanager
def open_lakehouse(root: Path, *, short_lived: bool = False) -> Iterator[Lakehouse]:
    catalog = f"spark.sql.catalog.{PEER}"
    peer = root / PEER
    peer.mkdir(parents=True)
    settings = {
        "master": "local[2]",
        "packages": [JDBC_DRIVER],
        "short_lived": short_lived,
        "conf": {
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{catalog}.uri": f"jdbc:sqlite:{peer}/catalog.db",
            f"{catalog}.jdbc.schema-version": "V1",
            f"{catalog}.warehouse": peer.as_uri(),
        },
    }
    nowhere = {"host": "127.0.0.1", "name": "bench", "username": "bench"}
    config = _config(root, {"pg_connection": nowhere, "spark": settings})
    spark = build_session(_spark_for(config, {"kind": "delta", "warehouse": str(root)}))
    try:
        spark.range(10).count()
        with PostgresServer(17, settings=SERVER_SETTINGS) as server, closing(Lakehouse(spark, root, server)) as opened:
            yield opened
    finally:
        spark.stop()


@contextmanager
def streaming(lakehouse: Lakehouse, conninfo: str, namespace: str, **settings: Any) -> Iterator[Pipeline]:
    """A pipeline that has copied its tables and streams, until the block ends."""
    with lakehouse.pipeline(lakehouse.config(conninfo, namespace, **settings)) as pipeline:
        pipeline.start()
        until_ready(pipeline)
        yield pipeline
