"""The fold of tables with a key: the last state of each key, and whether it was there before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ProtocolError, UnrepresentableKey
from .bag import appended, row_codes, survivors
from .changes import Indexes, Mask, ReadChanges, UnchangedCells
from .codes import Codes, combined_codes, key_column_codes
from .effects import Effects, sorted_effects
from .output import APPEND, DELETE, UPSERT, Outcome, struct_of, taken
from .toast import Resolution, resolve

__all__ = ["fold_keyed"]


@dataclass(frozen=True, slots=True, eq=False)
class _Keys:
    """The keys of new rows and of old ones, as codes; `unsent` are key values that stand in the old row only."""

    positions: tuple[int, ...]
    new: Codes
    old: Codes
    unsent: UnchangedCells | None

    @property
    def size(self) -> int:
        """One more than the largest code."""
        return int(max(self.new.max(), self.old.max())) + 1

    def is_unsent(self, position: int, size: int) -> Mask:
        mask = np.zeros(size, dtype=bool)
        if self.unsent is not None:
            mask[self.unsent.changes[self.unsent.columns == position]] = True
        return mask


@dataclass(frozen=True, slots=True, eq=False)
class _Decisions:
    """What becomes of keys: an operation each, and the effect that decided it."""

    op: npt.NDArray[np.uint8]
    effect: Indexes

    def joined(self, other: _Decisions) -> _Decisions:
        return _Decisions(np.concatenate((self.op, other.op)), np.concatenate((self.effect, other.effect)))


def fold_keyed(changes: ReadChanges, key: tuple[str, ...]) -> Outcome:
    """One folded change per key that is not as it was."""
    unchanged = changes.unchanged()
    keys = _keys(changes, key, unchanged)
    if changes.insert.all() and int(keys.new.max()) + 1 == len(changes):
        return appended(changes)
    moved = changes.update & changes.has_old & (keys.new != keys.old)
    effects = sorted_effects(changes, (changes.delete | moved, keys.old), (~changes.delete, keys.new))
    decided = _by_time(changes, effects, moved)
    shared = _shared_keys(changes, effects, keys, moved)
    if shared.any():
        alone = ~shared[effects.group[decided.effect]]
        by_time = _Decisions(decided.op[alone], decided.effect[alone])
        decided = by_time.joined(_by_value(changes, effects, keys, shared))
    alive = effects.arrives[decided.effect]
    # A departure sends nothing and lacks nothing: its values are masked below, whatever is found for it here.
    traced = resolve(changes, effects, moved, _without(unchanged, keys.positions), decided.effect)
    change = effects.change[decided.effect]
    # An append is complete: a row that takes values from another key is none, though its own key was free.
    incomplete = (decided.op == APPEND) & (traced.earliest >= 0)
    return Outcome(
        op=np.where(incomplete, UPSERT, decided.op).astype(np.uint8),
        change=change,
        row=_rows(changes, keys, traced, change, alive),
        unchanged=traced.unresolved(),
        origin=_origins(changes, effects, keys, traced, (decided, moved)),
    )


def _keys(changes: ReadChanges, key: tuple[str, ...], unchanged: UnchangedCells | None) -> _Keys:
    positions = tuple(changes.row_type.get_field_index(name) for name in key)
    unsent = _only(unchanged, positions)
    if unsent is not None and not changes.has_old[unsent.changes].all():
        raise ProtocolError(
            "an update came without a value of its key",
            detail="a TOASTed key column was not sent, and no old key with it",
            hint="update Postgres to its latest minor version, or shorten the key; then copy the table again",
        )
    size, parts = len(changes), []
    for position in positions:
        _require_values(changes, position, unsent)
        codes = key_column_codes(changes.sides(position))
        if unsent is not None:
            at = unsent.changes[unsent.columns == position]
            codes[at] = codes[at + size]
        parts.append(codes)
    codes = combined_codes(parts)
    old = codes[size:] if len(codes) > size else np.zeros(size, dtype=np.int64)
    return _Keys(positions, codes[:size], old, unsent)


def _require_values(changes: ReadChanges, position: int, unsent: UnchangedCells | None) -> None:
    """Raise UnrepresentableKey where a key lacks a value: rows with NULL in their key cannot be told apart."""
    absent = int(changes.delete.sum()) + (0 if unsent is None else int((unsent.columns == position).sum()))
    lacking = changes.new_column(position).null_count > absent
    if changes.has_old.any():
        old = pc.struct_field(changes.table.column("old"), [position])
        lacking = lacking or old.null_count > int((~changes.has_old).sum())
    if lacking:
        name = changes.row_type.field(position).name
        raise UnrepresentableKey(f"a key has no value in column {name} that its type can hold", columns=(name,))


def _by_time(changes: ReadChanges, effects: Effects, moved: Mask) -> _Decisions:
    """The first effect on a key tells whether it was there before the batch, the last one whether it is after it."""
    first = effects.change[effects.starts]
    arrives, alive = effects.arrives[effects.starts], effects.arrives[effects.ends]
    absent = arrives & (changes.insert[first] | moved[first])
    op = np.where(alive, np.where(changes.insert[first], APPEND, UPSERT), DELETE).astype(np.uint8)
    kept = alive | ~absent
    return _Decisions(op[kept], effects.ends[kept])


def _shared_keys(changes: ReadChanges, effects: Effects, keys: _Keys, moved: Mask) -> Mask:
    """Keys that two rows may have had at once, by code.

    A deferrable primary key may be broken until commit; Postgres takes none for an identity, but with REPLICA IDENTITY
    FULL the table may have one. Then the row that leaves a key need not be the one that arrived there last, and the
    order of effects does not tell the end. It takes a row that comes to a key and one that leaves it later in the same
    transaction.
    """
    shared = np.zeros(keys.size, dtype=bool)
    if changes.whole_old.any() and changes.whole_old[~changes.insert].all():
        comes = effects.arrives & (changes.insert | moved)[effects.change]
        end = len(effects) - 1
        departures = np.where(effects.arrives, end, np.arange(len(effects)))
        next_departure = np.minimum.accumulate(departures[::-1])[::-1]
        lsn = changes.table.column("commit_lsn").to_numpy()[effects.change]
        same = (effects.group[next_departure] == effects.group) & (lsn[next_departure] == lsn)
        shared[effects.group[comes & same & ~effects.arrives[next_departure]]] = True
    return shared


def _by_value(changes: ReadChanges, effects: Effects, keys: _Keys, shared: Mask) -> _Decisions:
    """Tell what becomes of these keys by the values of their rows, as in a table without key.

    At both ends of the batch a key has one row at most, so at most one value is gone and at most one is new.
    """
    old, new = row_codes(changes)
    values = sorted_effects(
        changes, (~changes.insert & shared[keys.old], old), (~changes.delete & shared[keys.new], new)
    )
    left = survivors(values)[0]
    change, arrives = values.change[left], values.arrives[left]
    group = np.where(arrives, keys.new[change], keys.old[change])
    gone, came = np.zeros_like(shared), np.zeros_like(shared)
    gone[group[~arrives]] = True
    came[group[arrives]] = True
    op = np.where(arrives, np.where(gone[group], UPSERT, APPEND), DELETE).astype(np.uint8)
    # An arrival has the same slot in both. The last effect on a key that is gone is that a row left it.
    place = np.zeros(2 * len(changes), dtype=np.int64)
    place[effects.slot] = np.arange(len(effects))
    last = np.zeros(keys.size, dtype=np.int64)
    last[effects.group[effects.ends]] = effects.ends
    effect = np.where(arrives, place[values.slot[left]], last[group])
    kept = arrives | ~came[group]
    return _Decisions(op[kept], effect[kept])


def _rows(changes: ReadChanges, keys: _Keys, traced: Resolution, change: Indexes, alive: Mask) -> pa.StructArray:
    gone = None if alive.all() else ~alive
    children = []
    for position in range(changes.row_type.num_fields):
        if position in keys.positions:
            children.append(_key_values(changes, keys, position, (change, ~alive)))
        elif position in traced.sources:
            source, missing = traced.sources[position]
            children.append(taken(changes.new_column(position), source, missing | ~alive))
        else:
            children.append(taken(changes.new_column(position), change, gone))
    return struct_of(list(changes.row_type), children)


def _key_values(changes: ReadChanges, keys: _Keys, position: int, rows: tuple[Indexes, Mask]) -> pa.Array:
    """Values of a key column of changes' new rows, or of their old ones where the mask says so."""
    change, of_old = rows
    of_old = of_old | keys.is_unsent(position, len(changes))[change]
    if not of_old.any():
        return taken(changes.new_column(position), change)
    return taken(changes.sides(position), np.where(of_old, change + len(changes), change))


def _origins(
    changes: ReadChanges, effects: Effects, keys: _Keys, traced: Resolution, ends: tuple[_Decisions, Mask]
) -> pa.StructArray | None:
    """The keys that rows had before the batch, where values must be taken from there."""
    decided, moved = ends
    change = effects.change[traced.earliest]
    before = np.where(moved[change], keys.old[change], keys.new[change])
    elsewhere = (traced.earliest >= 0) & (before != effects.group[decided.effect])
    if not elsewhere.any():
        return None
    fields = [changes.row_type.field(position) for position in keys.positions]
    children = [_key_values(changes, keys, position, (change, moved[change])) for position in keys.positions]
    return struct_of(fields, children, absent=~elsewhere)


def _only(cells: UnchangedCells | None, positions: tuple[int, ...]) -> UnchangedCells | None:
    return None if cells is None else _chosen(cells, np.isin(cells.columns, positions))


def _without(cells: UnchangedCells | None, positions: tuple[int, ...]) -> UnchangedCells | None:
    return None if cells is None else _chosen(cells, ~np.isin(cells.columns, positions))


def _chosen(cells: UnchangedCells, mask: Mask) -> UnchangedCells | None:
    return UnchangedCells(cells.changes[mask], cells.columns[mask]) if mask.any() else None
