"""The fold: the changes of a batch become one per key, or, in a table without key, what is left of each value.

A destination calls `folded`; the rest works on Arrow tables and knows no Spark. Columns of the result: `folded_schema`.
Apply all of it to the state before the batch at once: what `unchanged` and `origin` refer to is read before anything is
written, deletes come before upserts and appends.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from ...schema import ReplicaIdentity, ReplicatedTableSchema
from ..batch import Changes
from ..rows import Rows
from .bag import fold_bag
from .changes import read_changes
from .keyed import fold_keyed
from .output import folded_schema, folded_table

__all__ = ["fold_key", "fold_table", "folded", "folded_schema"]


def folded(changes: Changes) -> Rows:
    """The changes, folded in one place, with the columns of `folded_schema`."""
    key = fold_key(changes.schema)
    row_type = changes.rows.arrow_schema.field("row").type
    return changes.rows.together(partial(fold_table, key=key), folded_schema(row_type, key))


def fold_key(schema: ReplicatedTableSchema) -> tuple[str, ...] | None:
    """The columns that name a row in every change of it: the primary key, else the columns of the identity index.

    None for a table without key: its changes carry whole old rows (REPLICA IDENTITY FULL), or it has inserts only.
    """
    table = schema.table
    sent = {column.attnum for column in schema.identity}
    if table.key and all(column.attnum in sent for column in table.key):
        return tuple(column.name for column in table.key)
    if table.replica_identity is ReplicaIdentity.INDEX and table.identity_attnums and sent == {*table.identity_attnums}:
        return tuple(column.name for column in schema.identity)
    return None


def fold_table(changes: pa.Table, key: tuple[str, ...] | None) -> pa.Table:
    """Fold changes (`pgoutput.changes`), in any order, of one schema version, with no truncate between them."""
    if not changes.num_rows:
        return folded_schema(changes.schema.field("row").type, key).empty_table()
    read = read_changes(changes)
    return folded_table(read, key, fold_bag(read) if key is None else fold_keyed(read, key))
