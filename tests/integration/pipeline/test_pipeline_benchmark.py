"""`make bench` measures what it says: its parts run, on little data, and its figures and bars are those promised."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from headrace.testing import PostgresServer

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FIGURES = {
    "copy_iceberg_vs_psql_copy",
    "copy_iceberg_vs_jdbc",
    "copy_cpu_vs_jdbc",
    "stream_iceberg_vs_pg_recvlogical",
    "merge_vs_spark_merge",
    "delta_merge_vs_spark_merge",
    "freshness_8_tables_s",
    "freshness_1_table_s",
    "freshness_append_s",
    "batch_cost_by_rows",
    "batch_cost_by_tables",
    "destinations",
    "peak_memory_mb",
}


@pytest.fixture(autouse=True, scope="module")
def benchmarks() -> Iterator[None]:
    """The benchmarks import each other as the scripts that they are."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(BENCHMARKS)
        yield


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.fixture
def lakehouse(spark: Any, postgres: PostgresServer, tmp_path: Path) -> Iterator[Any]:
    with closing(module("pipeline_lakehouse").Lakehouse(spark, tmp_path, postgres)) as opened:
        yield opened


def test_freshness_is_measured(lakehouse: Any) -> None:
    found = module("pipeline_freshness").measure(lakehouse, module("pipeline_sizes").QUICK, 2, append=False)
    # The second slot has seen transactions of both tables, and each was found in its table.
    assert found["transactions"] > 2
    assert 0 < found["p50"] <= found["p95"] <= found["max"]
    assert set(found["peak_memory_mb"]) >= {"driver", "jvm", "receiver", "postgres"}


def test_growth_is_measured(lakehouse: Any) -> None:
    found = module("pipeline_growth").measure(lakehouse, module("pipeline_sizes").QUICK, "rows", rows=1_000, count=2)
    assert found["batch_s"] > 0
    assert found["write_s"] > 0


def test_a_transaction_is_seen_in_the_first_metadata_beyond_its_commit() -> None:
    freshness = module("pipeline_freshness")
    # Given commits at LSN 10, 20, 30, and metadata that goes up to 10 (not beyond), 21 and 40
    commits = freshness.Commits(np.array([100.0, 101.0, 102.0]), np.array([10, 20, 30]), 3)
    seen = [(100.5, 10), (103.0, 21), (104.0, 40)]
    # Then the first two are seen in the second, the third in the last
    assert freshness.freshness(commits, seen).tolist() == [3.0, 2.0, 2.0]
    with pytest.raises(AssertionError, match="1 transactions were never seen"):
        freshness.freshness(commits, seen[:2])


def test_the_lsn_is_the_newest_that_a_snapshot_has() -> None:
    lsn_of = module("pipeline_reader").lsn_of
    summaries: list[dict[str, str]] = [{"headrace.lsn": "0/10"}, {"headrace.lsn": "1/0"}, {"operation": "replace"}]
    assert lsn_of({"snapshots": [{"summary": summary} for summary in summaries]}) == 1 << 32
    assert lsn_of({"snapshots": [{"summary": summaries[2]}]}) is None


def test_bars_are_held_or_missed() -> None:
    report = module("pipeline_report")
    result = {"copy_iceberg_vs_psql_copy": 0.6, "copy_cpu_vs_jdbc": 0.61, "freshness_1_table_s": {"p50": 2.5, "p95": 9}}
    held = {name: verdict["holds"] for name, verdict in report.judged(result).items()}
    assert held == {"copy_iceberg_vs_psql_copy": True, "copy_cpu_vs_jdbc": False, "freshness_1_table_s": True}
    assert set(report.MEANINGS) == FIGURES
    assert set(report.BARS) < FIGURES


@pytest.mark.long
def test_the_whole_of_it_runs(tmp_path: Path) -> None:
    output = tmp_path / "pipeline.json"
    command = [sys.executable, str(BENCHMARKS / "pipeline.py"), "--quick", "--output", str(output)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(output.read_text())
    assert set(found) > FIGURES
    assert all(name in ended.stdout for name in FIGURES)
