"""An Iceberg destination whose tables are altered, without a source: versions of a table, what three readers see."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table

from headrace.destinations.contract import DestinationContext
from headrace.destinations.iceberg import IcebergDestination
from headrace.events import Relation
from headrace.lsn import Lsn
from headrace.pgtypes.registry import builtin_type
from headrace.schema import Column, ReplicaIdentity, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema
from headrace.stores import MemoryStore
from headrace.stores.records import DestinationTableMetadata
from headrace.testing.local_rows import Altered, Happening, batch_of, local_rows, transaction
from iceberg_duckdb import duckdb_with_iceberg, local_path
from lakehouse import iceberg_settings, lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Altering", "column", "relation", "table"]

_OIDS = {
    "bool": 16, "bytea": 17, "int8": 20, "int2": 21, "int4": 23, "text": 25, "json": 114, "float4": 700, "float8": 701,
    "varchar": 1043, "date": 1082, "timestamp": 1114, "timestamptz": 1184, "numeric": 1700, "_int4": 1007,
    "jsonb": 3802,
}  # fmt: skip


def column(attnum: int, name: str, kind: str, missing: str | None = None, comment: str | None = None) -> Column:
    """`kind` is a type's name, of a decimal with its digits: `numeric(10,2)`."""
    name_of_type, _, digits = kind.partition("(")
    typmod = -1
    if digits:
        precision, scale = map(int, digits.rstrip(")").split(","))
        typmod = (precision << 16 | scale) + 4
    found = builtin_type(_OIDS[name_of_type])
    assert found is not None
    return Column(name, attnum, found, typmod, comment=comment, missing=missing)


def table(
    *columns: Column, key: Sequence[str] = ("id",), name: str = "public.t", table_id: int = 16_500
) -> ReplicatedTableSchema:
    """With the key as replica identity; without a key all columns are."""
    own = tuple(
        replace(one, key_position=list(key).index(one.name) + 1, nullable=False) if one.name in key else one
        for one in columns
    )
    identity = ReplicaIdentity.DEFAULT if key else ReplicaIdentity.FULL
    attnums = tuple(one.attnum for one in own if not key or one.name in key)
    schema = TableSchema(table_id, TableName(*name.split(".")), own, identity, attnums)
    return ReplicatedTableSchema(schema, ReplicationMask.everything(schema))


def relation(old: ReplicatedTableSchema, new: ReplicatedTableSchema, *, rewritten: bool = False) -> Relation:
    return Relation(Lsn(1), Lsn(1), old, new, rewritten)


class Altering:
    """A destination over a warehouse, and the LSN of its stream."""

    def __init__(
        self, warehouse: Path, spark: SparkSession, published: ReplicatedTableSchema | None = None, **settings: Any
    ) -> None:
        self.warehouse, self._spark, self._settings = warehouse, spark, settings
        self.store = MemoryStore()
        self.lsn = Lsn(100)
        self.destination = self._started(*([] if published is None else [published]))

    def _started(self, *tables: ReplicatedTableSchema) -> IcebergDestination:
        destination = IcebergDestination(iceberg_settings(self.warehouse, **self._settings))
        destination.startup(DestinationContext(1, self.store, self._spark, tables))
        return destination

    def restart(self, *tables: ReplicatedTableSchema, **settings: Any) -> None:
        """As after a crash: nothing was closed in order."""
        self._settings.update(settings)
        self.destination = self._started(*tables)

    def copy(self, schema: ReplicatedTableSchema, *rows: Mapping[str, Any]) -> None:
        self.destination.write_table_rows(schema, local_rows(schema, rows, spark=self._spark), 0)
        metadata = DestinationTableMetadata(str(schema.table.name), Lsn(0), schema.mask)
        self.store.store_destination_metadata(schema.table.id, metadata.applied())

    def write(self, *happenings: Happening) -> Lsn:
        """One batch of one transaction; returns its commit's LSN."""
        commit = self.lsn
        self.lsn = Lsn(commit + 10)
        for one in happenings:
            if isinstance(one, Altered):
                assert self.destination.follows(Relation(commit, commit, one.old, one.new))
        batch = batch_of(transaction(commit, *happenings), end=self.lsn, spark=self._spark)
        self.destination.write_events(batch)
        return commit

    def table(self, name: str = "public.t") -> Table:
        return lake(self.warehouse).load_table(name)

    def read(self, name: str = "public.t", order: str = "id") -> list[dict[str, Any]]:
        """All rows, which pyiceberg, DuckDB and Spark agree on."""
        found = self.table(name)
        rows = _sorted(found.scan().to_arrow().to_pylist(), order)
        with duckdb_with_iceberg() as connection:
            relation = connection.sql(f"SELECT * FROM iceberg_scan('{local_path(found.metadata_location)}')")
            by_duckdb = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
        assert _sorted(by_duckdb, order) == rows
        assert (
            _sorted([row.asDict(recursive=True) for row in self.sql(f"SELECT * FROM headrace.{name}")], order) == rows
        )
        return rows

    def sql(self, statement: str) -> list[Any]:
        """By another session of Spark, in which the catalog is called headrace."""
        session = self._spark.newSession()
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": f"jdbc:sqlite:{self.warehouse}/catalog.db?busy_timeout=60000",
            ".jdbc.schema-version": "V1",
            ".warehouse": self.warehouse.as_uri(),
            ".cache-enabled": "false",
        }
        for key, value in settings.items():
            session.conf.set(f"spark.sql.catalog.headrace{key}", value)
        return session.sql(statement).collect()


def _sorted(rows: Sequence[Mapping[str, Any]], order: str) -> list[dict[str, Any]]:
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return sorted(plain, key=lambda row: repr(row[order]))


def _plain(value: Any) -> Any:
    """As all readers have it: moments in UTC, also those without a zone."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=dt.UTC)
    return bytes(value) if isinstance(value, bytearray) else value
