"""Folded changes, applied to a destination, give the source: random histories against a model of plain dicts."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from folding import Change, Key, Row, apply_to_bag, apply_to_keys, change_table, key_of, transactions
from headrace.destinations.fold import fold_table, folded_schema

ROW = pa.struct(
    [
        pa.field("t1", pa.string()),
        pa.field("a", pa.int32()),
        pa.field("n", pa.int64()),
        pa.field("b", pa.string()),
        pa.field("t2", pa.string()),
    ]
)
TOASTED = ("t1", "t2")


class Source:
    """A table with a primary key that notes what pgoutput would send of each operation."""

    def __init__(self, draw: st.DrawFn, key: tuple[str, ...], *, full: bool) -> None:
        self.draw, self.key, self.full = draw, key, full
        self.rows: dict[Key, dict[str, Any]] = {}
        self.sent: list[list[Change]] = [[]]

    def insert(self, row: dict[str, Any]) -> None:
        self.rows[key_of(row, self.key)] = row
        self.sent[-1].append(Change("I", dict(row)))

    def update(self, key: Key, row: dict[str, Any]) -> None:
        old = self.rows.pop(key)
        self.rows[key_of(row, self.key)] = row
        if self.full:
            self.sent[-1].append(Change("U", dict(row), old, "O"))
            return
        # Only a value that stayed as it was, and is TOASTed, is left out.
        same = [name for name in TOASTED if old[name] == row[name] and row[name] is not None]
        unsent = tuple(name for name in same if self.draw(st.booleans()))
        moved = key_of(row, self.key) != key
        shown = {**row, **dict.fromkeys(unsent)}
        old_key = self._old_key(old) if moved or self.draw(st.integers(0, 9)) == 0 else None
        self.sent[-1].append(Change("U", shown, old_key, "K" if old_key else None, unsent))

    def delete(self, key: Key) -> None:
        old = self.rows.pop(key)
        self.sent[-1].append(Change("D", None, old if self.full else self._old_key(old), "O" if self.full else "K"))

    def move(self, key: Key, to: Key) -> None:
        self.update(key, {**self.rows[key], **dict(zip(self.key, to, strict=True))})

    def commit(self) -> None:
        self.sent.append([])

    def _old_key(self, old: Row) -> Row:
        return {name: old[name] for name in self.key}


def draw_row(draw: st.DrawFn, key_columns: tuple[str, ...], key: Key) -> dict[str, Any]:
    texts = st.sampled_from([None, "", "x", "y"])
    row = {"t1": draw(texts), "a": draw(st.integers(0, 2)), "n": draw(st.sampled_from([None, 1, 2])), "b": draw(texts)}
    return {**row, "t2": draw(texts), **dict(zip(key_columns, key, strict=True))}


def act(draw: st.DrawFn, source: Source, keys: list[Key]) -> None:
    """One random operation that the table allows."""
    there = sorted(source.rows)
    free = [key for key in keys if key not in source.rows]
    choices = ["commit", *["insert"] * bool(free), *["update", "update", "touch", "delete"] * bool(there)]
    choices += ["move"] * bool(free and there) + ["swap"] * bool(free and len(there) > 1)
    match draw(st.sampled_from(choices)):
        case "insert":
            source.insert(draw_row(draw, source.key, draw(st.sampled_from(free))))
        case "update":
            key = draw(st.sampled_from(there))
            source.update(key, draw_row(draw, source.key, key))
        case "touch":
            key = draw(st.sampled_from(there))
            source.update(key, {**source.rows[key], "n": draw(st.integers(0, 9))})
        case "delete":
            source.delete(draw(st.sampled_from(there)))
        case "move":
            source.move(draw(st.sampled_from(there)), draw(st.sampled_from(free)))
        case "swap":
            one, other = draw(st.permutations(there))[:2]
            spare = draw(st.sampled_from(free))
            source.move(one, spare)
            source.move(other, one)
            source.move(spare, other)
        case _:
            source.commit()


def drawn_table(draw: st.DrawFn, changes: list[Change], row_type: pa.StructType) -> pa.Table:
    """The changes in any order, in any number of chunks."""
    if draw(st.booleans()):
        changes = draw(st.permutations(changes))
    table = change_table(row_type, changes)
    return pa.concat_tables(
        [pa.Table.from_batches(table.to_batches(max_chunksize=draw(st.integers(1, 9))), schema=table.schema)]
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[tuple[str, ...], dict[Key, Row], dict[Key, Row], pa.Table]:
    """A key, a table before, the table after, and what was sent between."""
    key = draw(st.sampled_from([("a",), ("b", "a"), ("a", "b")]))
    numbers, texts = range(4), ["", "p"]
    keys: list[Key] = [tuple(n if name == "a" else t for name in key) for n in numbers for t in texts]
    keys = sorted(set(keys))
    source = Source(draw, key, full=draw(st.integers(0, 3)) == 0)
    for k in draw(st.lists(st.sampled_from(keys), unique=True)):
        source.insert(draw_row(draw, key, k))
    before = {k: dict(row) for k, row in source.rows.items()}
    source.sent = [[]]
    for _ in range(draw(st.integers(0, 14))):
        act(draw, source, keys)
    changes = transactions(*source.sent)
    return key, before, source.rows, drawn_table(draw, changes, ROW)


@settings(max_examples=300, deadline=None)
@given(histories())
def test_keyed_history(history: tuple[tuple[str, ...], dict[Key, Row], dict[Key, Row], pa.Table]) -> None:
    key, before, after, changes = history

    folded = fold_table(changes, key)

    assert folded.schema == folded_schema(ROW, key)
    folded.validate(full=True)
    assert apply_to_keys(before, folded, key) == after
    # The envelope is that of a change of the batch.
    sent = set(zip(changes["commit_lsn"].to_pylist(), changes["tx_ordinal"].to_pylist(), strict=True))
    assert sent >= set(zip(folded["commit_lsn"].to_pylist(), folded["tx_ordinal"].to_pylist(), strict=True))


@st.composite
def deferred_histories(draw: st.DrawFn) -> tuple[dict[Key, Row], dict[Key, Row], pa.Table]:
    """Of a table with REPLICA IDENTITY FULL whose deferrable key is broken inside transactions, never at their end."""
    keys = list(range(5))
    rows = {k: draw_row(draw, ("a",), (k,)) for k in draw(st.lists(st.sampled_from(keys), unique=True))}
    before = {(k,): dict(row) for k, row in rows.items()}
    sent: list[list[Change]] = []
    for _ in range(draw(st.integers(1, 4))):
        part: list[Change] = []
        steps = draw(st.sampled_from(["permute", "replace", "renumber"]))
        if steps == "permute":
            order = list(rows)
            # Some keys of all, so that rows move to free keys too, one after the other.
            targets = draw(st.permutations(keys))
            moved = {}
            for k, to in zip(order, targets, strict=False):
                moved[to] = {**rows[k], "a": to}
                part.append(Change("U", moved[to], rows[k], "O"))
            rows = moved
        else:
            for k in list(rows):
                new = draw_row(draw, ("a",), (k,))
                # The new row comes before the old one goes, or after it.
                pair = [Change("I", new), Change("D", None, rows[k], "O")]
                part += pair if steps == "replace" else pair[::-1]
                rows[k] = new
        sent.append(part)
    return before, {(k,): row for k, row in rows.items()}, drawn_table(draw, transactions(*sent), ROW)


@settings(max_examples=150, deadline=None)
@given(deferred_histories())
def test_deferrable_key_of_a_table_with_full_identity(history: tuple[dict[Key, Row], dict[Key, Row], pa.Table]) -> None:
    before, after, changes = history

    assert apply_to_keys(before, fold_table(changes, ("a",)), ("a",)) == after


BAG = pa.struct(
    [
        pa.field("f", pa.float64()),
        pa.field("l", pa.list_(pa.string())),
        pa.field("m", pa.map_(pa.string(), pa.string())),
        pa.field("d", pa.decimal128(10, 2)),
        pa.field("y", pa.binary()),
        pa.field("s", pa.timestamp("us", "UTC")),
        pa.field("ll", pa.list_(pa.list_(pa.float32()))),
    ]
)
# Values that a careless comparison takes for one another.
BAG_VALUES: dict[str, list[Any]] = {
    "f": [None, float("nan"), 0.0, -0.0],
    "l": [None, [], [None], [""], ["", ""], ["a", "b"], ["ab"], ["a,b"], ["b", "a"]],
    "m": [None, [], [("a", None)], [("a", "")], [("a", "b")], [("b", "a")], [("a", "b"), ("c", None)]],
    "d": [None, Decimal("1.00"), Decimal("-1.00")],
    "y": [None, b"", b"\0", b"\0\0"],
    "s": [None, dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
    "ll": [None, [], [[]], [None], [[None]], [[1.0], [2.0]], [[1.0, 2.0]], [[float("nan")]]],
}


@st.composite
def bag_histories(draw: st.DrawFn) -> tuple[list[Row], list[Row], pa.Table]:
    values = {name: draw(st.lists(st.sampled_from(BAG_VALUES[name]), min_size=1, max_size=2)) for name in BAG_VALUES}
    one_row = st.fixed_dictionaries({name: st.sampled_from(values[name]) for name in values})
    rows: list[Row] = draw(st.lists(one_row, max_size=5))
    before, sent = list(rows), [[]]
    for _ in range(draw(st.integers(0, 10))):
        at = draw(st.integers(0, len(rows) - 1)) if rows else None
        match draw(st.sampled_from(["insert", "update", "delete", "commit"])):
            case "insert":
                rows.append(draw(one_row))
                sent[-1].append(Change("I", rows[-1]))
            case "update" if at is not None:
                new = draw(one_row)
                sent[-1].append(Change("U", new, rows[at], "O"))
                rows[at] = new
            case "delete" if at is not None:
                sent[-1].append(Change("D", None, rows.pop(at), "O"))
            case _:
                sent.append([])
    return before, rows, drawn_table(draw, transactions(*sent), BAG)


def counted(rows: list[Row]) -> Counter[str]:
    """Rows as Arrow shows them, counted by their text: NaN equals NaN there, and 0.0 is not -0.0."""
    return Counter(repr(row) for row in pa.array(rows, BAG).to_pylist())


@settings(max_examples=200, deadline=None)
@given(bag_histories())
def test_history_without_key(history: tuple[list[Row], list[Row], pa.Table]) -> None:
    before, after, changes = history

    folded = fold_table(changes, None)

    assert folded.schema == folded_schema(BAG, None)
    folded.validate(full=True)
    assert apply_to_bag(counted(before), folded) == counted(after)
    # Nothing is both deleted and appended.
    by_op = {op: {repr(c["row"]) for c in folded.to_pylist() if c["op"] == op} for op in "ID"}
    if not changes.num_rows or set(changes["op"].to_pylist()) != {"I"}:
        assert not by_op["I"] & by_op["D"]
