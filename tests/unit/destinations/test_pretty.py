"""Lines for people: what is in them, and that a value can do nothing to the terminal."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from headrace.destinations.pretty import pretty_drop, pretty_event, pretty_row, pretty_value
from headrace.destinations.stdout import StdoutDestination
from headrace.events import UNCHANGED, Event, OldRowKind, Truncate, TruncateOptions, Update
from headrace.lsn import Lsn
from headrace.testing.example_tables import ORDERS, VISITS, altered_table, example_column
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

LSN = Lsn(0x1_0000_0064)


def shown(*happened: object) -> list[str]:
    events: list[Event] = list(batch_of(transaction(LSN, *happened), end=Lsn(LSN + 1)).events())  # type: ignore[arg-type]
    return [pretty_event(event).plain for event in events]


def test_a_transaction() -> None:
    renamed = altered_table(
        ORDERS, *ORDERS.table.columns[:2], example_column("comment", 3), example_column("n", 4, "int4")
    )
    begin, *lines, commit = shown(
        Inserted(ORDERS, {"id": 1, "name": "ä", "note": None}),
        Updated(ORDERS, {"id": 2, "name": "b", "note": UNCHANGED}, old={"id": 1}),
        Updated(ORDERS, {"id": 2, "name": "c", "note": UNCHANGED}),
        Deleted(ORDERS, {"id": 2}),
        Truncated((ORDERS, VISITS)),
        Altered(ORDERS, renamed),
    )
    assert begin == "BEGIN 100  2026-01-02 03:04:05.678 UTC  1/64"
    assert commit == "COMMIT 100"
    assert lines == [
        "  INSERT   public.orders  id=1  name='ä'  note=NULL",
        "  UPDATE   public.orders  id=1 → 2  name='b'  note=(unchanged)",
        "  UPDATE   public.orders  id=2  name='c'  note=(unchanged)",
        "  DELETE   public.orders  id=2",
        "  TRUNCATE public.orders, public.visits",
        "  ALTER    public.orders  +n integer  note → comment",
    ]


def test_of_a_whole_old_row_only_what_changed_is_shown() -> None:
    moment = datetime.now(UTC)
    new, old = {"id": 1, "name": "b", "note": None}, {"id": 1, "name": "a", "note": None}
    update = Update(LSN, LSN, 0, 1, moment, ORDERS, new, old, OldRowKind.FULL)
    assert pretty_event(update).plain == "  UPDATE   public.orders  id=1  name='a' → 'b'"


def test_options_of_a_truncate_and_a_table_that_is_new() -> None:
    both = TruncateOptions.CASCADE | TruncateOptions.RESTART_IDENTITY
    truncate = Truncate(LSN, LSN, 0, 1, datetime.now(UTC), (ORDERS,), both)
    assert pretty_event(truncate).plain == "  TRUNCATE public.orders  cascade  restart identity"
    assert shown(Altered(None, ORDERS))[1] == "  ALTER    public.orders  is new: id bigint, name text, note text"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("1.50"), "1.50"),
        (True, "true"),
        (b"\xff", r"'\xff'"),
        ([1, None, ["a"]], "[1, NULL, [a]]"),
        ({"a": None}, "{a: NULL}"),
        ("\x1b]0;evil\x07\u202e", r"'\x1b]0;evil\x07\u202e'"),
        ("x" * 100, "'" + "x" * 59 + "…'"),
        ("line\nline", r"'line\nline'"),
    ],
)
def test_values(value: object, expected: str) -> None:
    assert pretty_value(value).plain == expected


def test_rows_of_a_copy() -> None:
    stream = io.StringIO()
    destination = StdoutDestination(stream, format="pretty")
    destination.drop_table_for_copy(ORDERS)
    destination.write_table_rows(ORDERS, local_rows(ORDERS, [{"id": 1, "name": "[bold]a", "note": None}]), 0)
    # Not a terminal: no colours; and what looks like markup is what it is.
    assert stream.getvalue().splitlines() == [
        "  DROP     public.orders",
        "  COPY     public.orders  id bigint, name text, note text",
        "  ROW      public.orders  id=1  name='[bold]a'  note=NULL",
    ]
    assert pretty_drop(ORDERS).plain == stream.getvalue().splitlines()[0]
    assert pretty_row(ORDERS, {"id": 1}).plain == "  ROW      public.orders  id=1"
