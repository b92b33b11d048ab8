"""The decoder's benchmark measures what it says: its made-up messages are those of a real server, and it runs."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest
from capture import Connection, publish

from headrace.pgoutput import messages as m
from headrace.pgoutput.decoder import decode
from headrace.pgoutput.encoder import encode


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "decoder_benchmark", Path(__file__).parents[3] / "benchmarks" / "decoder.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["ORDER_LINE", "STOCK", "CUSTOMER", "WIDE"])
def test_its_messages_are_what_a_server_sends(benchmark: ModuleType, connection: Connection, name: str) -> None:
    table = getattr(benchmark, name)
    relation: m.Relation = table.relation
    types = dict(connection.execute("SELECT oid::int, oid FROM pg_type").fetchall())
    columns = []
    for column in relation.columns:
        found = connection.execute("SELECT format_type(%s, %s)", (types[column.type_oid], column.typmod)).fetchone()
        assert found is not None
        columns.append(f"{column.name} {found[0]}")
    key = ", ".join(column.name for column in relation.columns if column.key)
    connection.execute(f"CREATE TABLE {relation.name} ({', '.join(columns)}, PRIMARY KEY ({key}))")
    row: m.TupleData = table.row(random.Random(5))
    values = [value.data.decode() for value in row if isinstance(value, m.Text)]
    with publish(connection) as slot:
        connection.execute(f"INSERT INTO {relation.name} VALUES ({', '.join(['%s'] * len(values))})", values)
        sent = slot.read()
    assert [one.kind for one in sent] == ["B", "R", "I", "C"]
    known = decode(sent[1].payload)
    assert isinstance(known, m.Relation)
    ours = m.Relation(known.relation_id, "public", relation.name, relation.replica_identity, relation.columns)
    assert sent[1].payload == encode(ours)
    assert sent[2].payload == encode(m.Insert(known.relation_id, row))


def test_it_measures(benchmark: ModuleType) -> None:
    figures = benchmark.measure(limit=1 << 18, repeats=1, rows=(100, 1000))
    assert set(figures["rows_per_cpu_s"]) == {"cols10", "cols17", "cols21_text500", "cols100"}
    assert set(benchmark.BARS) < set(figures["rows_per_cpu_s"])
    assert all(figure > 0 for figure in figures["rows_per_cpu_s"].values())
    assert list(figures["us_per_row"]) == ["100", "1000"]


def test_its_mix_is_that_of_tpcc(benchmark: ModuleType) -> None:
    batch = benchmark.tpcc_batch(1 << 18)
    tables = [decode(batch.message(index)) for index in range(len(batch))]
    per_table = {
        name: sum(
            getattr(message, "relation_id", None) == table.id and not isinstance(message, m.Relation)
            for message in tables
        )
        for name, table in (("ol", benchmark.ORDER_LINE), ("s", benchmark.STOCK), ("c", benchmark.CUSTOMER))
    }
    assert per_table["ol"] == 2 * per_table["s"] == 10 * per_table["c"]
