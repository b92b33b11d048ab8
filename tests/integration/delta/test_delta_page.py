"""The page about Delta: written as its first block says, read as the others do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from delta_tables import duckdb_with_delta
from docs_blocks import ROOT, blocks, run
from headrace.config.load import load_pipeline_config
from headrace.destinations.delta.java import PACKAGES, SPARK_CONF
from headrace.pipeline import Pipeline
from headrace.pipeline.build import build_destination
from headrace.stores import MemoryStore
from pipelining import pipeline_config

PAGE = "docs/destinations/delta.md"
HEAD = "id: 1\npublication_name: p\npg_connection: {host: db, name: shop, username: u}\n"


def test_the_page(
    conninfo: str, connection: psycopg.Connection[Any], spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, item text)")
    connection.execute("INSERT INTO orders VALUES (1, 'kettle'), (2, 'teapot')")
    connection.execute("CREATE PUBLICATION pub FOR TABLE orders")
    (tmp_path / "pipeline.yaml").write_text(HEAD + blocks(PAGE, "yaml")[0], encoding="utf-8")
    destination = load_pipeline_config(tmp_path / "pipeline.yaml", {}).destination
    config = pipeline_config(conninfo, tmp_path / "data", destination=destination, mode="copy_only")
    with Pipeline(config, MemoryStore(), build_destination(config), spark=spark) as pipeline:
        pipeline.start()
        assert pipeline.wait(300)
    expected = [(1, "kettle"), (2, "teapot")]
    with duckdb_with_delta() as reader:
        monkeypatch.setattr(duckdb, "sql", reader.sql)
        assert sorted(run(blocks(PAGE, "python")[0], {})["rows"]) == expected
    options = dict(line.split(maxsplit=1) for line in blocks(PAGE, "ini")[0].splitlines())
    assert options.pop("spark.jars.packages").split(",") == list(PACKAGES)
    assert options.items() <= SPARK_CONF.items()
    # Spark's Java was started in another directory.
    (query,) = re.findall(r"`(SELECT .+?` )`", (ROOT / PAGE).read_text(encoding="utf-8"))
    query = query.strip().replace("`warehouse", f"`{tmp_path}/warehouse")
    assert sorted(tuple(row) for row in spark.sql(query).collect()) == expected
