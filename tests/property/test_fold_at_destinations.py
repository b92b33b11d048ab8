"""Folded changes leave a destination as the same changes leave it one by one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.destinations.memory import MemoryDestination
from headrace.events import UNCHANGED, Event
from headrace.lsn import Lsn
from headrace.schema import ReplicatedTableSchema
from headrace.testing.canonical import canonical, canonical_text
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.example_tables import ORDERS, VISITS
from headrace.testing.local_rows import (
    Deleted,
    Happening,
    Inserted,
    Truncated,
    Updated,
    batch_of,
    local_rows,
    transaction,
)

KEYS = range(5)
Rows = list[dict[str, Any]]


class Source:
    """A table in Postgres: draws a change that is possible now, and makes it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.orders: dict[int, dict[str, Any]] = {}
        self.visits: Rows = []
        self.names = 0

    def order(self, key: int) -> dict[str, Any]:
        self.names += 1
        note = self.draw(st.sampled_from([None, f"note {self.names}"]))
        self.orders[key] = {"id": key, "name": f"name {self.names}", "note": note}
        return dict(self.orders[key])

    def of_orders(self) -> Happening:
        free, taken = [k for k in KEYS if k not in self.orders], sorted(self.orders)
        kinds = ["truncate"] + ["insert"] * 4 * bool(free) + ["update", "delete", "toast"] * 3 * bool(taken)
        kinds += ["move"] * 6 * bool(free and taken)
        kind = self.draw(st.sampled_from(kinds))
        if kind == "truncate":
            self.orders.clear()
            return Truncated((ORDERS,))
        if kind == "insert":
            return Inserted(ORDERS, self.order(self.draw(st.sampled_from(free))))
        key = self.draw(st.sampled_from(taken))
        if kind == "update":
            return Updated(ORDERS, self.order(key))
        if kind == "toast":
            self.orders[key] = {**self.orders[key], "name": None}
            return Updated(ORDERS, {**self.orders[key], "note": UNCHANGED})
        row = self.orders.pop(key)
        if kind == "delete":
            return Deleted(ORDERS, {"id": key})
        to = self.draw(st.sampled_from(free))
        self.orders[to] = {**row, "id": to}
        return Updated(ORDERS, {**self.orders[to], "note": UNCHANGED}, old={"id": key})

    def of_visits(self) -> Happening:
        kind = self.draw(st.sampled_from(["insert"] + ["update", "delete"] * bool(self.visits)))
        if kind == "insert":
            return Inserted(VISITS, self.visit())
        old = self.visits.pop(self.draw(st.integers(0, len(self.visits) - 1)))
        return Deleted(VISITS, old) if kind == "delete" else Updated(VISITS, self.visit(), old=old)

    def visit(self) -> dict[str, Any]:
        row = {"page": self.draw(st.sampled_from(["a", "b", None])), "seconds": self.draw(st.integers(1, 2))}
        self.visits.append(row)
        return row


@st.composite
def histories(draw: st.DrawFn, schema: ReplicatedTableSchema) -> tuple[Rows, list[list[tuple[Event, ...]]], Rows]:
    """The rows of a copy, batches of transactions, and the rows in the end."""
    source = Source(draw)
    change = source.of_orders if schema is ORDERS else source.of_visits

    def rows() -> Rows:
        return list(source.orders.values() if schema is ORDERS else source.visits)

    for _ in range(draw(st.integers(0, 8))):
        change()
    copied = rows()
    sizes = draw(st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=4), min_size=1, max_size=3))
    lsns = iter(range(100, 10_000, 100))
    batches = [[transaction(Lsn(next(lsns)), *(change() for _ in range(size))) for size in batch] for batch in sizes]
    return copied, batches, rows()


def as_texts(rows: Rows) -> list[str]:
    return sorted(canonical_text(canonical(row)) for row in rows)


def states(schema: ReplicatedTableSchema, copied: Rows, batches: list[list[tuple[Event, ...]]]) -> Iterator[Rows]:
    name = schema.table.name
    with tempfile.TemporaryDirectory() as directory:
        memory, durable = MemoryDestination(), DurableDestination(Path(directory) / "d.db")
        for destination in (memory, durable):
            destination.write_table_rows(schema, local_rows(schema, copied), 0)
            for batch in batches:
                destination.write_events(batch_of(*batch, end=Lsn(batch[-1][-1].commit_lsn + 1)))
        yield memory.rows(name).to_pylist()
        yield durable.rows(name)
        durable.shutdown()


@settings(max_examples=60, deadline=None)
@given(histories(ORDERS))
def test_a_table_with_a_key(history: tuple[Rows, list[list[tuple[Event, ...]]], Rows]) -> None:
    copied, batches, expected = history
    for rows in states(ORDERS, copied, batches):
        assert as_texts(rows) == as_texts(expected)


@settings(max_examples=40, deadline=None)
@given(histories(VISITS))
def test_a_table_without_key(history: tuple[Rows, list[list[tuple[Event, ...]]], Rows]) -> None:
    copied, batches, expected = history
    for rows in states(VISITS, copied, batches):
        assert as_texts(rows) == as_texts(expected)
