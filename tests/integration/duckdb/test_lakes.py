"""Lakes with catalogs and storages of every kind, and what keeps them quick to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from duckdb_reading import LakeReader, duckdb_with_lake, lake_settings
from headrace.destinations.contract import DestinationContext
from headrace.destinations.duckdb import DuckDBDestination
from headrace.errors import DestinationError
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import ORDERS, VISITS
from headrace.testing.local_rows import Deleted, Inserted, Updated, batch_of, local_rows, transaction
from headrace.testing.s3 import S3Server

ROWS = [{"id": key, "name": "n", "note": "x" * 100} for key in range(100)]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def opened(root: Path, **settings: Any) -> DuckDBDestination:
    destination = DuckDBDestination(lake_settings(root, **settings))
    destination.startup(DestinationContext(1, MemoryStore(), None))
    destination.claim()
    return destination


def write(destination: DuckDBDestination, number: int) -> None:
    """One batch, over two tables."""
    happened = (
        Inserted(ORDERS, {"id": 1000 + number, "name": "new", "note": None}),
        Updated(ORDERS, {"id": number, "name": "changed", "note": str(number)}),
        Deleted(ORDERS, {"id": 50 + number}),
        Inserted(VISITS, {"page": "p", "seconds": number}),
    )
    destination.write_events(
        batch_of(transaction(Lsn(100 * number), *happened), end=Lsn(100 * number + 50), start=Lsn(0))
    )


def filled(destination: DuckDBDestination, batches: int = 2) -> None:
    destination.write_table_rows(ORDERS, local_rows(ORDERS, ROWS), 0)
    destination.write_table_rows(VISITS, local_rows(VISITS, []), 0)
    for number in range(1, batches + 1):
        write(destination, number)


def assert_filled(reader: LakeReader, batches: int = 2) -> None:
    changed = range(1, batches + 1)
    expected = {row["id"]: row for row in ROWS if row["id"] not in [50 + number for number in changed]}
    expected |= {number: {"id": number, "name": "changed", "note": str(number)} for number in changed}
    expected |= {1000 + number: {"id": 1000 + number, "name": "new", "note": None} for number in changed}
    assert sorted(reader.rows("public.orders"), key=lambda row: row["id"]) == [
        expected[key] for key in sorted(expected)
    ]
    assert sorted(row["seconds"] for row in reader.rows("public.visits")) == list(changed)


def test_a_catalog_in_postgres_and_data_in_s3(conninfo: str, s3: S3Server, tmp_path: Path) -> None:
    it = conninfo_to_dict(conninfo)
    uri = f"host={it['host']} port={it['port']} dbname={it['dbname']} user={it['user']}"
    catalog = {"type": "postgres", "uri": uri, "password": it["password"], "metadata_schema": "the lake"}
    storage = {"endpoint": f"127.0.0.1:{s3.port}", "url_style": "path", "use_ssl": "false", "region": "us-east-1"}
    secrets = {"key_id": s3.access_key, "secret": s3.secret_key}
    settings = {"catalog": catalog, "storage": storage, "data_path": f"s3://{s3.bucket}/shop"}
    destination = opened(tmp_path, **settings, secrets=secrets, data_inlining_row_limit=0)
    filled(destination)
    assert destination.applied_lsn(ORDERS) == Lsn(250)
    destination.shutdown()
    reader = duckdb_with_lake()
    parameters = {**storage, **secrets}
    reader.execute(
        "CREATE OR REPLACE SECRET lake_reader (TYPE s3, "
        + ", ".join(f"{name} '{value}'" for name, value in parameters.items())
        + ")"
    )
    assert_filled(LakeReader(f"postgres:{uri} password={it['password']}", ", METADATA_SCHEMA 'the lake'"))
    # A wrong secret is told, and not shown
    wrong = {"key_id": s3.access_key, "secret": "do-not-show"}
    with pytest.raises(DestinationError) as raised:
        opened(tmp_path, **settings, secrets=wrong, data_inlining_row_limit=0)
    assert "do-not-show" not in f"{raised.value} {raised.value.detail}"


def test_a_catalog_in_a_duckdb_file(tmp_path: Path) -> None:
    catalog = {"type": "duckdb", "uri": str(tmp_path / "catalog.ducklake")}
    destination = opened(tmp_path, catalog=catalog)
    filled(destination)
    destination.shutdown()
    destination = opened(tmp_path, catalog=catalog)
    assert destination.applied_lsn(ORDERS) == Lsn(250)
    destination.shutdown()
    assert_filled(LakeReader(str(tmp_path / "catalog.ducklake")))


@pytest.mark.parametrize("inlined", [0, 1000])
def test_maintenance_changes_no_row(inlined: int, tmp_path: Path) -> None:
    """Small files are merged, inlined rows written out, what nobody needs is gone; batches go on."""
    often = {"interval_s": 3600, "snapshot_age_s": 0, "retention_s": 0}
    destination = opened(tmp_path, data_inlining_row_limit=inlined, maintenance=often)
    filled(destination, 6)
    reader = LakeReader(f"sqlite:{tmp_path}/lake.sqlite")
    before = len(list((tmp_path / "data").rglob("*.parquet")))
    destination.maintain()
    assert_filled(reader, 6)
    after = len(list((tmp_path / "data").rglob("*.parquet")))
    assert after < before if inlined == 0 else after > before
    write(destination, 7)
    destination.maintain()
    assert_filled(reader, 7)
    destination.shutdown()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_maintenance_keeps_files_and_snapshots_for_readers(kind: str, tmp_path: Path) -> None:
    """Queries that began before files were merged read those files, and old snapshots can be read for a while."""
    catalog = {"type": kind, "uri": str(tmp_path / "catalog")}
    rarely = {"interval_s": 3600, "snapshot_age_s": 3600, "retention_s": 3600}
    destination = opened(tmp_path, catalog=catalog, data_inlining_row_limit=0, maintenance=rarely)
    filled(destination, 6)
    before = set((tmp_path / "data").rglob("*.parquet"))
    for _ in range(2):
        destination.maintain()
    after = set((tmp_path / "data").rglob("*.parquet"))
    destination.shutdown()
    assert before < after
    attached = f"sqlite:{tmp_path}/catalog" if kind == "sqlite" else str(tmp_path / "catalog")
    assert_filled(LakeReader(attached), 6)
    connection = duckdb_with_lake()
    connection.execute(f"ATTACH 'ducklake:{attached}' AS aged (READ_ONLY)")
    try:
        oldest = connection.execute("SELECT min(snapshot_id) FROM ducklake_snapshots('aged')").fetchone()
    finally:
        connection.execute("DETACH aged")
    assert oldest == (0,)


def test_two_pipelines_write_to_one_lake(tmp_path: Path) -> None:
    first = opened(tmp_path)
    second = DuckDBDestination(lake_settings(tmp_path, namespace="other"))
    second.startup(DestinationContext(2, MemoryStore(), None))
    second.claim()
    for destination in (first, second):
        filled(destination)
    for destination in (first, second):
        write(destination, 3)
        destination.shutdown()
    reader = LakeReader(f"sqlite:{tmp_path}/lake.sqlite")
    assert_filled(reader, 3)
    assert len(reader.rows("other.orders")) == len(reader.rows("public.orders"))
