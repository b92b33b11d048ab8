"""What a walk ends in: destinations by kind, each read back by something that is not Headrace.

What a destination thinks of its tables counts for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from delta_tables import read_delta
from duckdb_reading import DuckDBFile, LakeReader, read_released
from headrace.destinations.memory import MemoryDestination
from headrace.testing.canonical import canonical, canonical_text
from headrace.testing.durable_destination import DurableDestination
from lakehouse import canonical_rows, lake, read_table
from pipelining import destination_rows
from schema_walk import ANY_KEY, Reading, Shown

__all__ = ["destination_settings", "durable_reading", "memory_reading", "reading", "reading_within"]

# Often, so that it is at work whenever the process dies.
_MAINTAINED = {"maintenance": {"interval_s": 5}}


def destination_settings(kind: str, root: Path) -> Mapping[str, Any]:
    """Of a pipeline. None for those that are built by the test itself."""
    warehouse, engine = str(root / "warehouse"), {"engine": {"memory_limit": "500MB"}}
    lake = {"catalog": {"uri": str(root / "lake.sqlite")}, "data_path": warehouse}
    known: Mapping[str, Mapping[str, Any]] = {
        "iceberg": {"warehouse": warehouse, **_MAINTAINED},
        "delta": {"warehouse": warehouse, "maintenance": {"interval_s": 5, "small_files": 5}},
        # Closed after each batch: no other process could read it.
        "duckdb": {"database": str(root / "walk.duckdb"), "release": True, **engine},
        "ducklake": {**lake, **_MAINTAINED, **engine},
    }
    return {"destination": {"kind": kind, **known[kind]}} if kind in known else {}


def memory_reading(destination: MemoryDestination) -> Reading:
    def read(table: str) -> Shown:
        schema = destination.rows(table).schema
        return Shown(destination_rows(destination, table), schema.names, schema.types)

    return read


def reading(kind: str, root: Path) -> Reading:
    """Of a destination that another process writes."""
    if kind == "durable":
        return durable_reading(DurableDestination(root / "destination.db"))
    if kind == "iceberg":
        return _of_tables(
            lambda name: read_table(root / "warehouse", name),
            partial(_identifier, root / "warehouse"),
            has_smallint=False,
        )
    tables: Mapping[str, Callable[[tuple[str, ...]], pa.Table]] = {
        "delta": lambda name: read_delta(root / "warehouse", *name),
        "duckdb": lambda name: read_released(root / "walk.duckdb", name),
        "ducklake": lambda name: LakeReader(f"sqlite:{root / 'lake.sqlite'}").table(name),
    }
    return _of_tables(tables[kind], has_smallint=kind != "delta")


def durable_reading(destination: DurableDestination) -> Reading:
    def read(table: str) -> Shown:
        rows = destination_rows(destination, table)
        columns, key = destination.shape(table)
        return Shown(rows, columns, key=None if key is None else frozenset(key))

    return read


def reading_within(kind: str, root: Path) -> Reading:
    """Of a destination that this process writes: it cannot open a file of DuckDB a second time."""
    return _of_tables(DuckDBFile(root / "walk.duckdb").table) if kind == "duckdb" else reading(kind, root)


def _identifier(warehouse: Path, name: tuple[str, ...]) -> frozenset[str] | None:
    """The identifier fields of an Iceberg table, which are what is required."""
    catalog = lake(warehouse)
    try:
        schema = catalog.load_table(name).schema()
    finally:
        catalog.close()
    names = schema.identifier_field_names()
    assert names == {field.name for field in schema.fields if field.required}, name
    return frozenset(names) or None


def _of_tables(
    table_named: Callable[[tuple[str, ...]], pa.Table],
    key_of: Callable[[tuple[str, ...]], frozenset[str] | None] = lambda _: ANY_KEY,
    *,
    has_smallint: bool = True,
) -> Reading:
    def read(table: str) -> Shown:
        name = tuple(table.split(".", 1))
        try:
            found, key = table_named(name), key_of(name)
        except (NoSuchTableError, NoSuchNamespaceError, FileNotFoundError, duckdb.Error) as error:
            # Not there yet; or somebody was quicker than the reader: maintenance, the next batch.
            raise KeyError(f"{table}: {error}") from error
        found = found.rename_columns(list(_source_names(found.column_names)))
        rows = sorted(canonical_text(canonical(row)) for row in canonical_rows(found))
        return Shown(rows, found.column_names, found.schema.types, key, has_smallint)

    return read


def _source_names(names: Sequence[str]) -> Iterator[str]:
    """In DuckDB, where names differ in case only, all but the first have a number behind them."""
    seen: set[str] = set()
    for name in names:
        plain = re.sub(r"_\d+_*$", "", name)
        yield plain if plain.casefold() in seen else name
        seen.add(plain.casefold())
