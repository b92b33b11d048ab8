"""Which changes a copy has not seen: by one snapshot, and by ranges that each have their own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import KeyRangesOvertaken
from headrace.initial_copy.handoff import CopiedRange, Handoff
from headrace.lsn import Lsn
from headrace.pgoutput.changes import CHANGE_FIELDS
from headrace.pgtypes.registry import builtin_type, conversion_for
from headrace.postgres.snapshots import Snapshot

INT8, UUID, TIMESTAMPTZ = 20, 2950, 1184
EARLY, LATE = Snapshot.parse("100:100:"), Snapshot.parse("200:200:")
"""Transaction 150 happened between the two."""


def changes(*rows: dict[str, Any], kind: pa.DataType | None = None) -> pa.RecordBatch:
    row = pa.struct([("id", kind or pa.int64()), ("v", pa.string())])
    defaults = {"commit_lsn": 1, "tx_ordinal": 0, "commit_time": 0, "start_lsn": 1, "unchanged": None}
    full = [{**defaults, "old_kind": None, "row": None, "old": None, **each} for each in rows]
    return pa.RecordBatch.from_pylist(full, schema=pa.schema([*CHANGE_FIELDS, ("row", row), ("old", row)]))


def by_key(*ranges: CopiedRange, oid: int = INT8) -> Handoff:
    kind = builtin_type(oid)
    assert kind is not None
    return Handoff(ranges, Lsn(1000), "id", conversion_for(kind))


def told(batch: pa.RecordBatch) -> list[tuple[str, Any, Any]]:
    return [
        (change["op"], change["row"] and change["row"]["id"], change["old"] and change["old"]["id"])
        for change in batch.to_pylist()
    ]


# Keys below 10 were copied early, the others late.
TWO = by_key(CopiedRange(None, "10", EARLY), CopiedRange("10", None, LATE))


def test_under_one_snapshot_a_change_is_due_iff_its_transaction_is_not_visible() -> None:
    handoff = Handoff((CopiedRange(None, None, Snapshot.parse("100:110:105")),), Lsn(1000))
    batch = changes(*({"op": "I", "xid": xid, "row": {"id": xid}} for xid in (99, 104, 105, 109, 110, 300)))
    assert [change[1] for change in told(handoff.due(batch))] == [105, 110, 300]


def test_each_key_is_judged_by_its_own_range() -> None:
    batch = changes(
        {"op": "I", "xid": 150, "row": {"id": 9}},
        {"op": "I", "xid": 150, "row": {"id": 10}},
        {"op": "U", "xid": 150, "row": {"id": 5}},
        {"op": "U", "xid": 150, "row": {"id": 50}},
        {"op": "D", "xid": 150, "old": {"id": 3}, "old_kind": "K"},
        {"op": "D", "xid": 150, "old": {"id": 30}, "old_kind": "K"},
        {"op": "I", "xid": 250, "row": {"id": 11}},
    )
    assert told(TWO.due(batch)) == [("I", 9, None), ("U", 5, None), ("D", None, 3), ("I", 11, None)]


def test_what_all_ranges_have_seen_may_be_older_than_the_key_column() -> None:
    row = pa.struct([("was_id", pa.int64()), ("v", pa.string())])
    schema = pa.schema([*CHANGE_FIELDS, ("row", row), ("old", row)])
    change = {"op": "I", "xid": 50, "commit_lsn": 1, "tx_ordinal": 0, "commit_time": 0, "start_lsn": 1}
    older = pa.RecordBatch.from_pylist([{**change, "row": {"was_id": 1}}], schema=schema)
    assert TWO.due(older).num_rows == 0


def test_a_key_change_within_what_is_due_stays_one() -> None:
    batch = changes({"op": "U", "xid": 150, "row": {"id": 4}, "old": {"id": 3}, "old_kind": "K"})
    assert told(TWO.due(batch)) == [("U", 4, 3)]


def test_a_key_change_out_of_a_copied_range_is_a_delete() -> None:
    batch = changes({"op": "U", "xid": 150, "row": {"id": 40, "v": "x"}, "old": {"id": 4}, "old_kind": "K"})
    assert told(TWO.due(batch)) == [("D", None, 4)]


def test_a_key_change_into_a_copied_range_is_an_insert() -> None:
    batch = changes(
        {"op": "U", "xid": 150, "row": {"id": 4, "v": "x"}, "old": {"id": 40}, "old_kind": "K"},
        {"op": "I", "xid": 150, "row": {"id": 41}},
    )
    due = TWO.due(batch)
    assert told(due) == [("I", 4, None)]
    assert due.column("old_kind").to_pylist() == [None]


def test_a_half_without_its_toasted_value_is_refused() -> None:
    batch = changes({"op": "U", "xid": 150, "row": {"id": 4}, "old": {"id": 40}, "old_kind": "K", "unchanged": [1]})
    with pytest.raises(KeyRangesOvertaken, match="TOAST"):
        TWO.due(batch)


def test_the_other_half_does_not_need_it() -> None:
    batch = changes({"op": "U", "xid": 150, "row": {"id": 40}, "old": {"id": 4}, "old_kind": "K", "unchanged": [1]})
    due = TWO.due(batch)
    assert told(due) == [("D", None, 4)]
    assert due.column("unchanged").to_pylist() == [None]


def test_a_truncate_is_due_for_all_ranges_or_for_none() -> None:
    assert TWO.statement_due(250)
    assert not TWO.statement_due(50)
    with pytest.raises(KeyRangesOvertaken, match="truncated"):
        TWO.statement_due(150)


@pytest.mark.parametrize(
    ("oid", "kind", "bound", "below", "above"),
    [
        (
            UUID,
            pa.string(),
            "80000000-0000-0000-0000-000000000000",
            "7fffffff-ffff-ffff-ffff-ffffffffffff",
            "80000000-0000-0000-0000-000000000000",
        ),
        (
            TIMESTAMPTZ,
            pa.timestamp("us", "UTC"),
            "2025-01-01 00:00:00+00",
            pa.scalar(1735689599999999, pa.timestamp("us", "UTC")).as_py(),
            pa.scalar(1735689600000000, pa.timestamp("us", "UTC")).as_py(),
        ),
    ],
    ids=["uuid", "timestamptz"],
)
def test_keys_of_other_types(oid: int, kind: pa.DataType, bound: str, below: Any, above: Any) -> None:
    handoff = by_key(CopiedRange(None, bound, EARLY), CopiedRange(bound, None, LATE), oid=oid)
    batch = changes(
        {"op": "I", "xid": 150, "row": {"id": below}}, {"op": "I", "xid": 150, "row": {"id": above}}, kind=kind
    )
    assert told(handoff.due(batch)) == [("I", below, None)]


def test_a_key_without_a_place_in_the_order_is_refused() -> None:
    with pytest.raises(KeyRangesOvertaken, match="infinity"):
        TWO.due(changes({"op": "I", "xid": 150, "row": {"id": None}}))
