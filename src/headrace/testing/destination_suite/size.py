"""Tables of full size, made and changed column-wise. Marked `long`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ...destinations.batch import Changes, EventBatch, TableBatch
from ...events import Begin, Commit, Delete, Event, OldRowKind, Update
from ...lsn import INVALID_LSN, Lsn
from ...pgoutput.changes import CHANGE_FIELDS
from ..example_tables import ORDERS
from ..local_rows import COMMIT_TIME, LocalRows, arrow_schema_of
from .site import Site

__all__ = ["SizeSuite"]

_MILLION = 1_000_000
_PART_ROWS = 125_000
_XID = 700
_COMMIT, _END = Lsn(100), Lsn(200)


class SizeSuite:
    """Mixed into `DestinationSuite`, whose fixtures it uses."""

    @pytest.mark.long
    def test_a_million_rows(self, site: Site) -> None:
        keys = np.arange(_MILLION)
        site.copy_rows(ORDERS, LocalRows(_orders(keys, "copied"), spark=site.spark, part_rows=_PART_ROWS))
        updated, deleted = keys[keys % 10 == 1], keys[keys % 10 == 2]
        changes = pa.concat_tables([_changes("U", updated, 0), _changes("D", deleted, len(updated))])
        rows = LocalRows(changes, spark=site.spark, part_rows=_PART_ROWS)
        part = TableBatch(ORDERS, INVALID_LSN, (Changes(ORDERS, rows),))
        site.destination.write_events(EventBatch(_END, (part,), lambda: _events(changes)))
        kept = keys[~np.isin(keys % 10, (1, 2))]
        expected = pa.concat_tables([_orders(kept, "copied"), _orders(updated, "updated")])
        site.destination.flush()
        found = site.suite.read(site.destination, ORDERS.table.name)
        assert len(found) == len(expected)
        # Not as texts: there are many.
        assert sorted((row["id"], row["name"], row["note"]) for row in found) == sorted(
            zip(*(column.to_pylist() for column in expected.columns), strict=True)
        )


def _orders(keys: np.ndarray, word: str) -> pa.Table:
    ids = pa.array(keys, pa.int64())
    names = pc.binary_join_element_wise(word, ids.cast(pa.string()), " ")
    return pa.Table.from_arrays([ids, names, names], schema=arrow_schema_of(ORDERS))


def _changes(op: str, keys: np.ndarray, ordinal: int) -> pa.Table:
    size = len(keys)
    rows = _orders(keys, "updated")
    nothing = pa.nulls(size, pa.struct(list(rows.schema)))
    new = pa.StructArray.from_arrays([column.combine_chunks() for column in rows.columns], fields=list(rows.schema))
    nulls = [pa.nulls(size, pa.string())] * 2
    key = pa.StructArray.from_arrays([rows["id"].combine_chunks(), *nulls], fields=list(rows.schema))
    place = {
        "op": pa.repeat(op, size),
        "commit_lsn": pa.repeat(int(_COMMIT), size),
        "tx_ordinal": pa.array(np.arange(ordinal, ordinal + size)),
        "xid": pa.repeat(_XID, size),
        "commit_time": pa.repeat(pa.scalar(COMMIT_TIME, pa.timestamp("us", "UTC")), size),
        "start_lsn": pa.repeat(int(_COMMIT), size),
        "unchanged": pa.nulls(size, pa.list_(pa.int32())),
        "old_kind": pa.repeat("K", size) if op == "D" else pa.nulls(size, pa.string()),
        "row": nothing if op == "D" else new,
        "old": key if op == "D" else nothing,
    }
    row = nothing.type
    return pa.table(place, schema=pa.schema([*CHANGE_FIELDS, pa.field("row", row), pa.field("old", row)]))


def _events(changes: pa.Table) -> Iterator[Event]:
    """For destinations that take events one by one."""
    place: dict[str, Any] = {
        "start_lsn": _COMMIT, "commit_lsn": _COMMIT, "xid": _XID, "commit_time": COMMIT_TIME, "schema": ORDERS
    }  # fmt: skip
    yield Begin(_COMMIT, _COMMIT, _XID, COMMIT_TIME)
    for change in (row for batch in changes.to_batches() for row in batch.to_pylist()):
        ordinal = change["tx_ordinal"]
        if change["op"] == "U":
            yield Update(**place, tx_ordinal=ordinal, row=change["row"], old=None, old_kind=None)
        else:
            yield Delete(**place, tx_ordinal=ordinal, old={"id": change["old"]["id"]}, old_kind=OldRowKind.KEY)
    yield Commit(_COMMIT, _END, _XID, COMMIT_TIME)
