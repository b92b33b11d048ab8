"""A table of changes, read for the fold: masks and numbers per change, and the two rows each change may carry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Indexes", "Mask", "ReadChanges", "UnchangedCells", "read_changes"]

Indexes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class UnchangedCells:
    """Values that were not sent: pairs of a change and a column's position, `columns` in no order."""

    changes: Indexes
    columns: Indexes


@dataclass(frozen=True, slots=True, eq=False)
class ReadChanges:
    """Changes in the order they came in. A row is named by a *side*: i for the new row of change i, i + the number of
    changes for its old one.
    """

    table: pa.Table
    insert: Mask
    update: Mask
    delete: Mask
    has_old: Mask
    whole_old: Mask
    rank: Indexes
    """The place of each change in commit order."""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def row_type(self) -> pa.StructType:
        return self.table.schema.field("row").type

    @property
    def is_ordered(self) -> bool:
        return bool((self.rank[1:] > self.rank[:-1]).all())

    @property
    def in_order(self) -> Indexes:
        """The changes, as indexes, in commit order."""
        order = np.empty(len(self), dtype=np.int64)
        order[self.rank] = np.arange(len(self))
        return order

    def new_column(self, position: int) -> pa.ChunkedArray:
        # struct_field puts the struct's own NULLs on its child: what stands below a NULL row is never seen.
        return pc.struct_field(self.table.column("row"), [position])

    def sides(self, position: int) -> pa.ChunkedArray:
        """A column of the new rows and, if there are any, of the old ones behind them."""
        new = self.new_column(position)
        if not self.has_old.any():
            return new
        old = pc.struct_field(self.table.column("old"), [position])
        return pa.chunked_array([*new.chunks, *old.chunks], type=new.type)

    def unchanged(self) -> UnchangedCells | None:
        lists = self.table.column("unchanged")
        if lists.null_count == len(self):
            return None
        counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        columns = pc.list_flatten(lists).to_numpy().astype(np.int64)
        return UnchangedCells(np.repeat(np.arange(len(self)), counts), columns) if len(columns) else None


def read_changes(table: pa.Table) -> ReadChanges:
    op, old_kind = table.column("op"), table.column("old_kind")
    insert, delete = _mask(pc.equal(op, "I")), _mask(pc.equal(op, "D"))
    if old_kind.null_count == table.num_rows:
        has_old = whole_old = np.zeros(table.num_rows, dtype=bool)
    else:
        has_old, whole_old = _mask(old_kind.is_valid()), _mask(pc.fill_null(pc.equal(old_kind, "O"), fill_value=False))
    return ReadChanges(table, insert, ~(insert | delete), delete, has_old, whole_old, _rank(table))


def _mask(values: pa.ChunkedArray) -> Mask:
    mask: Mask = values.to_numpy()
    return mask.astype(bool, copy=False)


def _rank(table: pa.Table) -> Indexes:
    lsn, ordinal = table.column("commit_lsn").to_numpy(), table.column("tx_ordinal").to_numpy()
    places = np.arange(len(lsn))
    ascending = (lsn[1:] > lsn[:-1]) | ((lsn[1:] == lsn[:-1]) & (ordinal[1:] > ordinal[:-1]))
    if ascending.all():
        return places
    rank = np.empty(len(lsn), dtype=np.int64)
    rank[np.lexsort((ordinal, lsn))] = places
    return rank
