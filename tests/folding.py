"""Tables of changes as pgoutput makes them, and a destination that applies folded ones in the plainest way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.pgoutput.changes import CHANGE_FIELDS

Row = Mapping[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    op: str
    row: Row | None = None
    old: Row | None = None
    old_kind: str | None = None
    unchanged: tuple[str, ...] = ()
    commit_lsn: int = 0
    tx_ordinal: int = 0


def insert(**row: Any) -> Change:
    return Change("I", row)


def update(
    row: Row, *, unchanged: Sequence[str] = (), old_key: Row | None = None, old_row: Row | None = None
) -> Change:
    """An update; with `old_key` as after a key change, with `old_row` as under REPLICA IDENTITY FULL."""
    kind = "K" if old_key is not None else "O" if old_row is not None else None
    return Change("U", row, old_row if old_key is None else old_key, kind, tuple(unchanged))


def delete(**old_key: Any) -> Change:
    return Change("D", None, old_key, "K")


def delete_row(**old_row: Any) -> Change:
    return Change("D", None, old_row, "O")


def transactions(*parts: Sequence[Change]) -> list[Change]:
    """Number changes: each part is a transaction."""
    return [
        replace(change, commit_lsn=100 * (number + 1), tx_ordinal=ordinal)
        for number, part in enumerate(parts)
        for ordinal, change in enumerate(part)
    ]


def change_table(row_type: pa.StructType, changes: Sequence[Change]) -> pa.Table:
    """Changes as one table; where a row is NULL, values of some other row stand below it, as Arrow allows."""
    names = [field.name for field in row_type]
    columns: list[pa.Array] = [
        pa.array([change.op for change in changes], pa.string()),
        pa.array([change.commit_lsn for change in changes], pa.int64()),
        pa.array([change.tx_ordinal for change in changes], pa.int64()),
        pa.array([change.commit_lsn + 7 for change in changes], pa.int64()),
        pa.array([change.commit_lsn * 1000 for change in changes], pa.timestamp("us", "UTC")),
        pa.array([change.commit_lsn - 50 for change in changes], pa.int64()),
        pa.array(
            [[names.index(name) for name in change.unchanged] or None for change in changes], pa.list_(pa.int32())
        ),
        pa.array([change.old_kind for change in changes], pa.string()),
        _structs(row_type, [change.row for change in changes]),
        _structs(row_type, [change.old for change in changes]),
    ]
    fields = [*CHANGE_FIELDS, pa.field("row", row_type), pa.field("old", row_type)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _structs(row_type: pa.StructType, rows: Sequence[Row | None]) -> pa.StructArray:
    below = next((row for row in rows if row is not None), {})
    children = [
        pa.array([(below if row is None else row).get(field.name) for row in rows], field.type) for field in row_type
    ]
    return pa.StructArray.from_arrays(
        children, fields=list(row_type), mask=pa.array([row is None for row in rows], pa.bool_())
    )


def key_of(row: Row, key: Sequence[str]) -> Key:
    return tuple(row[name] for name in key)


def apply_to_keys(before: Mapping[Key, Row], folded: pa.Table, key: Sequence[str]) -> dict[Key, dict[str, Any]]:
    """Apply folded changes to a table with a key; what they promise about it is asserted."""
    after = {k: dict(row) for k, row in before.items()}
    names = [field.name for field in folded.schema.field("row").type]
    changes = folded.to_pylist()
    keys = [key_of(change["row"], key) for change in changes]
    assert len(set(keys)) == len(keys), "a key has two folded changes"
    for k, change in zip(keys, changes, strict=True):
        assert change["count"] == 1
        if change["op"] == "D":
            del after[k]
            assert all(value is None for name, value in change["row"].items() if name not in key)
            assert change["unchanged"] is None
            assert change["origin"] is None
    for k, change in zip(keys, changes, strict=True):
        if change["op"] == "D":
            continue
        row = dict(change["row"])
        missing = change["unchanged"]
        if change["op"] == "I":
            assert k not in before, "an append of a row that is there"
            assert missing is None
        if missing is None:
            assert change["origin"] is None
        else:
            assert missing, "an empty list instead of NULL"
            assert missing == sorted(missing)
            source = before[k if change["origin"] is None else key_of(change["origin"], key)]
            assert change["origin"] is None or key_of(change["origin"], key) != k
            for position in missing:
                assert row[names[position]] is None
                row[names[position]] = source[names[position]]
        after[k] = row
    return after


def apply_to_bag(before: Counter[str], folded: pa.Table) -> Counter[str]:
    """Apply folded changes to a table without key, whose rows are told apart by their text."""
    after = Counter(before)
    for change in folded.to_pylist():
        if change["op"] == "D":
            after[repr(change["row"])] -= change["count"]
        else:
            assert change["op"] == "I"
            assert change["count"] == 1
            after[repr(change["row"])] += 1
    assert min(after.values(), default=0) >= 0, "more deletes than rows"
    return +after
