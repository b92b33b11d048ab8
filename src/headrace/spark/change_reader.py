"""Reads one table's changes from a segment: decoded column-wise, without those the destination has already."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..config.spool import SpoolConfig
from ..errors import TableSchemaChanged, UnrepresentableValue
from ..initial_copy.handoff import Handoff
from ..initial_copy.reader import copy_columns
from ..lsn import Lsn
from ..pgoutput.batch import MessageBatch
from ..pgoutput.changes import CHANGE_FIELDS, ChangeBatch
from ..pgoutput.columnar import decode_changes
from ..pgoutput.envelope import Envelope, envelope
from ..pgoutput.messages import Relation
from ..pgtypes.registry import TypeOptions
from ..schema import ReplicatedTableSchema
from ..schema_policy import Target
from ..spool import Spool
from ..spool.name import SegmentName
from .part import Read
from .projection import projected
from .quarantine import rejected_changes, rejected_columns, require_keys

__all__ = ["START", "ChangeReader", "Place", "change_schema", "read_messages", "require_same_columns"]

Place = tuple[int, int]
"""A change's commit LSN and ordinal: its place in the order of all changes."""

START: Place = (0, -1)

_DEFAULTS = TypeOptions()


@dataclass(frozen=True, slots=True)
class ChangeReader:
    """A table's changes at or after `lower` and before `upper`, of the segments it is called with."""

    spool: SpoolConfig
    schema: ReplicatedTableSchema
    lower: Place
    upper: Place
    handoff: Handoff | None = None
    """Given while the table may meet changes that its copy has seen."""
    options: TypeOptions = _DEFAULTS
    quarantine: bool = True
    target: Target | None = None
    """Given where the rows go into a table with other columns."""

    def __call__(self, part: SegmentName) -> Iterator[Read]:
        batch, messages = read_messages(self.spool, part)
        types = {column.type.oid: column.type for column in self.schema.columns}
        texts = frozenset(column.name for column in self.schema.columns if column.type.as_text)
        options = replace(self.options, text_columns=texts)
        for decoded in decode_changes(batch, messages, self.schema.table.id, types, options):
            yield self._read(decoded)

    def _read(self, decoded: ChangeBatch) -> Read:
        changes = self._due(decoded.changes)
        rejected = None
        if changes.num_rows:
            require_same_columns(self.schema, decoded.relation)
            if decoded.rejected.num_rows:
                rejected = self._rejected(decoded, changes)
            # A batch without a due change may be of another version.
            if self.target is not None:
                changes = projected(changes, self.schema, self.target)
        return Read(changes, rejected, changes.nbytes)

    def _due(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        inside = _at_or_after(changes, self.lower) & ~_at_or_after(changes, self.upper)
        if not inside.all():
            changes = changes.filter(pa.array(inside))
        if self.handoff is None or not changes.num_rows or Lsn(self.lower[0]) >= self.handoff.until:
            return changes
        return self.handoff.due(changes)

    def _rejected(self, decoded: ChangeBatch, kept: pa.RecordBatch) -> pa.RecordBatch:
        require_keys(self.schema, rejected_columns(decoded, kept))
        rejected = rejected_changes(self.schema, decoded, kept)
        if rejected.num_rows and not self.quarantine:
            names = ", ".join(sorted(set(rejected.column("column").to_pylist())))
            msg = f"table {self.schema.table.name} has values in {names} that no destination type holds"
            raise UnrepresentableValue(msg)
        return rejected


def change_schema(schema: ReplicatedTableSchema, options: TypeOptions = _DEFAULTS) -> pa.Schema:
    """The columns a ChangeReader yields."""
    row = pa.struct([pa.field(name, conversion.arrow_type) for name, conversion in copy_columns(schema, options)])
    return pa.schema([*CHANGE_FIELDS, pa.field("row", row), pa.field("old", row)])


def require_same_columns(schema: ReplicatedTableSchema, relation: Relation) -> None:
    """Raises TableSchemaChanged when a relation has other columns than those the table was copied with."""
    known = [(column.name, column.type.oid, column.typmod) for column in schema.columns]
    found = [(column.name, column.type_oid, column.typmod) for column in relation.columns]
    if known != found:
        before, after = {name for name, *_ in known}, {name for name, *_ in found}
        altered = {name for name, *_ in set(known) ^ set(found)} & before & after
        told = {"gone": before - after, "new": after - before, "altered": altered}
        detail = "; ".join(f"{what}: {', '.join(sorted(names))}" for what, names in told.items() if names)
        msg = f"the columns of table {schema.table.name} changed"
        raise TableSchemaChanged(msg, detail=detail or "their order is another")


# Keyed by the pickled settings, which can be told apart by value; the settings themselves hold a mapping.
@lru_cache(maxsize=4)
def _opened(config: bytes) -> Spool:
    return Spool.open(pickle.loads(config))  # noqa: S301 - made by this module


# The jobs of a batch's tables read the same segments one after the other, in the same few worker processes.
@lru_cache(maxsize=3)
def _read_messages(config: bytes, name: SegmentName) -> tuple[MessageBatch, Envelope]:
    batch = _opened(config).read(name)
    return batch, envelope(batch)


def read_messages(config: SpoolConfig, name: SegmentName) -> tuple[MessageBatch, Envelope]:
    """A segment's messages and their transactions; the last few are kept."""
    return _read_messages(pickle.dumps(config), name)


def _at_or_after(changes: pa.RecordBatch, place: Place) -> npt.NDArray[np.bool_]:
    lsns: npt.NDArray[np.int64] = changes.column("commit_lsn").to_numpy()
    later: npt.NDArray[np.bool_] = lsns >= place[0] if place[1] < 0 else lsns > place[0]
    if place[1] < 0:
        return later
    ordinals: npt.NDArray[np.int64] = changes.column("tx_ordinal").to_numpy()
    at_or_after: npt.NDArray[np.bool_] = later | ((lsns == place[0]) & (ordinals >= place[1]))
    return at_or_after
