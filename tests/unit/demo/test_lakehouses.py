"""demo.lakehouses: the query to try is a command that a shell takes as it stands, wherever the demo was run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from pyiceberg.catalog import load_catalog

from headrace.demo.lakehouses import LAKEHOUSES
from headrace.destinations.duckdb.extensions import load_extension

AWKWARD = """it's a "demo" for $5 `now`"""
ORDERS = "orders AS SELECT 'open' AS status, 7 AS total"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / AWKWARD
    (directory / "warehouse").mkdir(parents=True)
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    return directory


def shown(kind: str, place: Path) -> str:
    query = LAKEHOUSES[kind].query(place)
    result = subprocess.run(["/bin/sh", "-c", query], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_duckdb(place: Path) -> None:
    with duckdb.connect(str(place / "shop.duckdb")) as engine:
        engine.execute(f"CREATE SCHEMA shop; CREATE TABLE shop.shop.{ORDERS}")
    assert "open" in shown("duckdb", place)
    assert LAKEHOUSES["duckdb"].reader(place)("shop.orders").num_rows == 1


def test_ducklake(place: Path) -> None:
    with duckdb.connect() as engine:
        for name in ("sqlite_scanner", "ducklake"):
            load_extension(engine, name)
        at = str(place / "warehouse").replace("'", "''")
        engine.execute(f"ATTACH 'ducklake:sqlite:{at}/lake.sqlite' AS lake (DATA_PATH '{at}/data')")
        engine.execute(f"CREATE SCHEMA lake.shop; CREATE TABLE lake.shop.{ORDERS}")
    assert "open" in shown("ducklake", place)
    assert LAKEHOUSES["ducklake"].reader(place)("shop.orders").num_rows == 1


def test_iceberg(place: Path) -> None:
    warehouse = place / "warehouse"
    catalog = load_catalog(
        "headrace", type="sql", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=str(warehouse)
    )
    catalog.create_namespace("shop")
    rows = duckdb.sql("SELECT 'open' AS status, 7 AS total").to_arrow_table()
    catalog.create_table("shop.orders", rows.schema).append(rows)
    catalog.engine.dispose()
    assert "open" in shown("iceberg", place)


def test_delta_is_a_command_too(place: Path) -> None:
    """There is no table: what the shell and Python were given is in what DuckDB says."""
    query = LAKEHOUSES["delta"].query(place)
    result = subprocess.run(["/bin/sh", "-c", query], capture_output=True, text=True, check=False)
    assert "SyntaxError" not in result.stderr
    assert "delta_scan" in query
    assert "warehouse/shop/orders" in result.stderr
