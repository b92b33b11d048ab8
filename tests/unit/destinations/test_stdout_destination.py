from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from headrace.destinations.json_lines import json_value
from headrace.destinations.stdout import StdoutDestination
from headrace.errors import ConfigError, DestinationError, RetryPolicy
from headrace.events import UNCHANGED, Truncate, TruncateOptions
from headrace.lsn import Lsn
from headrace.schema import TableName
from headrace.testing.example_tables import ORDERS, SAMPLES, VISITS, altered_table, example_column, example_table
from headrace.testing.local_rows import (
    Altered,
    Deleted,
    Inserted,
    Truncated,
    Updated,
    batch_of,
    local_rows,
    transaction,
)

PLACE = {"commit_lsn": "1/64", "start_lsn": "1/64", "xid": 100, "commit_time": "2026-01-02T03:04:05.678901+00:00"}
LSN = Lsn(0x1_0000_0064)
ORDERS_COLUMNS = [
    {"name": "id", "type": "int8", "attnum": 1},
    {"name": "name", "type": "text", "attnum": 2},
    {"name": "note", "type": "text", "attnum": 3},
]


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_events_are_lines_in_commit_order() -> None:
    stream = io.StringIO()
    happened = (
        Altered(None, ORDERS),
        Inserted(ORDERS, {"id": 1, "name": "ä", "note": None}),
        Updated(ORDERS, {"id": 2, "name": "b", "note": UNCHANGED}, old={"id": 1}),
        Inserted(VISITS, {"page": "p", "seconds": 3}),
        Deleted(ORDERS, {"id": 2}),
        Truncated((ORDERS, VISITS)),
    )
    StdoutDestination(stream).write_events(batch_of(transaction(LSN, *happened), end=Lsn(LSN + 1)))
    begin, relation, *changes, commit = lines(stream)
    assert begin == {"kind": "begin", "commit_lsn": "1/64", "xid": 100, "commit_time": PLACE["commit_time"]}
    assert relation == {
        "kind": "relation", "table": "public.orders", "oid": ORDERS.table.id, "first": True, "identity": ["id"],
        "columns": ORDERS_COLUMNS,
        "commit_lsn": "1/64", "start_lsn": "1/64",
    }  # fmt: skip
    orders = {"table": "public.orders", **PLACE}
    assert changes == [
        {"kind": "insert", **orders, "tx_ordinal": 0, "row": {"id": 1, "name": "ä", "note": None}},
        {"kind": "update", **orders, "tx_ordinal": 1, "row": {"id": 2, "name": "b"}, "unchanged": ["note"],
         "old": {"id": 1}, "old_kind": "key"},
        {"kind": "insert", **PLACE, "table": "public.visits", "tx_ordinal": 2, "row": {"page": "p", "seconds": 3}},
        {"kind": "delete", **orders, "tx_ordinal": 3, "old": {"id": 2}, "old_kind": "key"},
        {"kind": "truncate", **PLACE, "tables": ["public.orders", "public.visits"], "options": [], "tx_ordinal": 4},
    ]  # fmt: skip
    assert commit == {**begin, "kind": "commit", "end_lsn": "1/65"}


def test_an_altered_table_is_told_with_what_existing_rows_show() -> None:
    stream = io.StringIO()
    key, name, _ = ORDERS.table.columns
    added = [
        example_column("price", 9, "numeric(10,2)", missing="1.50"),
        example_column("share", 10, "float4", missing="0.1"),
        example_column("shares", 11, "_float4", missing="{0.1,NULL}"),
    ]
    new = altered_table(ORDERS, key, replace(name, name="title"), *added)
    new = replace(new, table=replace(new.table, name=TableName("sales", "orders")))
    StdoutDestination(stream).write_events(batch_of(transaction(LSN, Altered(ORDERS, new)), end=Lsn(LSN + 1)))
    assert lines(stream)[1] == {
        "kind": "relation", "table": "sales.orders", "oid": ORDERS.table.id, "was": "public.orders", "first": False,
        "identity": ["id"],
        "columns": [
            ORDERS_COLUMNS[0],
            {**ORDERS_COLUMNS[1], "name": "title"},
            {"name": "price", "type": "numeric", "attnum": 9, "missing": "1.50"},
            {"name": "share", "type": "float4", "attnum": 10, "missing": 0.1},
            {"name": "shares", "type": "_float4", "attnum": 11, "missing": [0.1, None]},
        ],
        "commit_lsn": "1/64", "start_lsn": "1/64",
    }  # fmt: skip


def rejected_days(destination: StdoutDestination) -> None:
    """A copied row, and the first of two inserted ones, have a day that no date is."""
    table = example_table(16_999, "days", {"id": "int8", "day": "date"}, ("id",))
    aside = {"key": '{"id": "1"}', "column": "day", "text": "infinity"}
    destination.write_table_rows(table, local_rows(table, [{"id": 1, "day": None}], rejected=[aside]), 0)
    inserted = (Inserted(table, {"id": key, "day": None}) for key in (2, 3))
    streamed = {**aside, "key": None, "text": "-infinity", "commit_lsn": int(LSN), "tx_ordinal": 0}
    destination.write_events(batch_of(transaction(LSN, *inserted), end=Lsn(LSN + 1), rejected=[streamed]))


def test_values_that_no_type_holds_are_told_behind_their_row() -> None:
    stream = io.StringIO()
    rejected_days(StdoutDestination(stream))
    told = lines(stream)
    kinds = ["copy", "row", "rejected", "begin", "insert", "rejected", "insert", "commit"]
    assert [line["kind"] for line in told] == kinds
    value = {"kind": "rejected", "table": "public.days", "column": "day"}
    assert told[2] == {**value, "text": "infinity", "key": {"id": "1"}}
    assert told[5] == {**value, "text": "-infinity", "key": None, "commit_lsn": "1/64", "tx_ordinal": 0}
    pretty = io.StringIO()
    rejected_days(StdoutDestination(pretty, "pretty"))
    assert [line for line in pretty.getvalue().splitlines() if "REJECTED" in line] == [
        '  REJECTED public.days  day=\'infinity\'  {"id": "1"}',
        "  REJECTED public.days  day='-infinity'",
    ]


def test_options_of_a_truncate_are_named() -> None:
    stream = io.StringIO()
    both = TruncateOptions.CASCADE | TruncateOptions.RESTART_IDENTITY
    truncate = Truncate(LSN, LSN, 0, 1, datetime.now(UTC), (ORDERS,), both)
    StdoutDestination(stream).write_events(batch_of([truncate], end=Lsn(LSN + 1)))
    assert lines(stream)[0]["options"] == ["CASCADE", "RESTART_IDENTITY"]


def test_copied_rows_are_lines() -> None:
    stream = io.StringIO()
    destination = StdoutDestination(stream)
    row = {column.name: None for column in SAMPLES.columns} | {"id": 1, "amount": Decimal("1.50"), "data": b"\x0a"}
    destination.drop_table_for_copy(SAMPLES)
    destination.write_table_rows(SAMPLES, local_rows(SAMPLES, [row]), 3)
    columns = [{"name": c.name, "type": c.type.name, "attnum": c.attnum} for c in SAMPLES.columns]
    assert lines(stream) == [
        {"kind": "drop", "table": "public.samples", "oid": SAMPLES.table.id},
        {
            "kind": "copy",
            "table": "public.samples",
            "oid": SAMPLES.table.id,
            "part": 3,
            "columns": columns,
            "identity": ["id"],
        },
        {"kind": "row", "table": "public.samples", "row": row | {"amount": "1.50", "data": "\\x0a"}},
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**53 + 1, 2**53 + 1),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (0.1, 0.1),
        (Decimal("1E+3"), "1000"),
        (b"", "\\x"),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2023-12-31T23:00:00+00:00"),
        ([Decimal("1.0"), None, [b"\xff"]], ["1.0", None, ["\\xff"]]),
        ({"a": None, "b": "1"}, {"a": None, "b": "1"}),
    ],
)
def test_values_in_json(value: object, expected: object) -> None:
    assert json_value(value) == expected
    assert json.dumps(json_value(value), allow_nan=False)


def test_a_batch_is_flushed() -> None:
    read, write = os.pipe()
    with open(write, "w", encoding="utf-8") as stream, open(read, encoding="utf-8") as reader:
        StdoutDestination(stream).drop_table_for_copy(ORDERS)
        assert json.loads(reader.readline()) == {"kind": "drop", "table": "public.orders", "oid": ORDERS.table.id}


def test_a_broken_pipe_waits_for_the_operator() -> None:
    read, write = os.pipe()
    os.close(read)
    stream = open(write, "w", encoding="utf-8")  # noqa: SIM115 - closing it raises too
    with pytest.raises(DestinationError, match="nobody reads") as caught:
        StdoutDestination(stream).drop_table_for_copy(ORDERS)
    assert caught.value.retry is RetryPolicy.MANUAL
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_closed_stream_waits_for_the_operator() -> None:
    stream = io.StringIO()
    stream.close()
    with pytest.raises(DestinationError, match="closed") as caught:
        StdoutDestination(stream).drop_table_for_copy(ORDERS)
    assert caught.value.retry is RetryPolicy.MANUAL


def test_there_is_one_format() -> None:
    with pytest.raises(ConfigError, match="yaml"):
        StdoutDestination(format="yaml")


def test_it_writes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    StdoutDestination().drop_table_for_copy(ORDERS)
    assert json.loads(capsys.readouterr().out)["kind"] == "drop"
