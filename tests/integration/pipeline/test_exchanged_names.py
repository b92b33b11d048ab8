"""Tables that exchange their names, where no event trigger tells of it: each ends up under its own name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from delta_tables import DeltaLake, delta_settings
from headrace.destinations.contract import Destination
from headrace.destinations.delta import DeltaDestination
from headrace.destinations.delta.catalog import DeltaCatalog
from headrace.destinations.iceberg import IcebergDestination
from headrace.destinations.iceberg.catalog import Catalog
from headrace.errors import DestinationError
from headrace.stores import MemoryStore
from lakehouse import Lake, iceberg_settings, lake
from pipelining import Piped, assert_equal_tables, destination_rows, piped, pipeline_config, source_rows

Connection = psycopg.Connection[Any]

NAMES = ("a", "b", "c")


@pytest.fixture(autouse=True)
def tables(connection: Connection) -> None:
    for name in NAMES:
        connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, note text)")
        connection.execute(f"INSERT INTO {name} VALUES (1, 'was {name}')")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b, c")


def rename(connection: Connection, **renamed: str) -> None:
    """All in one transaction, by way of names that nobody has; then a change in each table."""
    with connection.transaction():
        for old in renamed:
            connection.execute(f"ALTER TABLE {old} RENAME TO passing_{old}")
        for old, new in renamed.items():
            connection.execute(f"ALTER TABLE passing_{old} RENAME TO {new}")
    for name in NAMES:
        connection.execute(f"INSERT INTO {name} VALUES (2, 'now {name}')")


def opened(kind: str, root: Path) -> Destination:
    if kind == "iceberg":
        return IcebergDestination(iceberg_settings(root))
    return DeltaDestination(delta_settings(root))


def reader(kind: str, root: Path) -> Any:
    return Lake(lake(root)) if kind == "iceberg" else DeltaLake(root)


def until_same(running: Piped, connection: Connection, kind: str, root: Path) -> None:
    def same() -> bool:
        try:
            return all(destination_rows(reader(kind, root), f"public.{n}") == source_rows(connection, n) for n in NAMES)
        except Exception:  # noqa: BLE001 - a table is not there for a moment
            return False

    running.until(same)
    running.until_ready()


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize("renamed", [{"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "a"}], ids=["two", "three"])
def test_names_are_exchanged(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, kind: str, renamed: dict[str, str]
) -> None:
    root = tmp_path / "warehouse"
    config = pipeline_config(conninfo, tmp_path, source={"install": "never"})
    with piped(config, MemoryStore(), opened(kind, root), spark) as running:
        running.until_ready()
        rename(connection, **renamed)
        until_same(running, connection, kind, root)
        # And back, while the tables are known.
        connection.execute("DELETE FROM a WHERE id = 2; DELETE FROM b WHERE id = 2; DELETE FROM c WHERE id = 2")
        rename(connection, **{new: old for old, new in renamed.items()})
        until_same(running, connection, kind, root)
    assert_equal_tables(connection, reader(kind, root), *(f"public.{name}" for name in NAMES))


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_crash_between_the_renames(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """One table is out of the way, the other is not renamed yet; then another process goes on."""
    root, store = tmp_path / "warehouse", MemoryStore()
    config = pipeline_config(conninfo, tmp_path, source={"install": "never"})
    catalog = Catalog if kind == "iceberg" else DeltaCatalog
    inner, done, refused = catalog.rename, list[str](), list[str]()

    def only_once(self: Any, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        if done:
            refused.append(new[-1])
            msg = "no more renames"
            raise DestinationError(msg)
        inner(self, old, new)
        done.append(new[-1])

    with piped(config, store, opened(kind, root), spark) as running:
        running.until_ready()
        with monkeypatch.context() as patched:
            patched.setattr(catalog, "rename", only_once)
            rename(connection, a="b", b="a")
            running.until(lambda: bool(refused))
            running.pipeline.stop()
    assert "__headrace_" in done[0]
    with piped(config, store, opened(kind, root), spark) as running:
        until_same(running, connection, kind, root)
