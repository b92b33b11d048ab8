"""A transform function applied to Arrow batches: to rows as they are, and to both sides of changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import DestinationRejected
from ...remedies import RESYNC
from .hook import Hook
from .hooked_table import HookedTable

__all__ = ["kept_aside", "transform_changes", "transform_known", "transform_rows"]

_Indexes = npt.NDArray[np.int64]


def transform_rows(hook: Hook, table: HookedTable, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Transform whole rows."""
    return transform_known(hook, table, batch, frozenset())


def transform_known(hook: Hook, table: HookedTable, rows: pa.RecordBatch, unsent: frozenset[str]) -> pa.RecordBatch:
    """Transform rows of which these columns were not sent. Columns made of them alone are NULL in the result.

    The function gets rows without these columns; those without which it fails are NULL.
    """
    staying = table.staying(unsent)
    given = pa.RecordBatch.from_arrays(rows.columns, names=[column.name for column in table.source.columns])
    for name in unsent & table.indispensable:
        at = given.schema.get_field_index(name)
        given = given.set_column(at, name, pa.nulls(len(given), given.schema.field(at).type))
    given = given.drop_columns(sorted(unsent - table.indispensable))
    if not len(given):
        return pa.RecordBatch.from_pylist([], schema=table.fields)
    result = hook.called(given, table.source)
    _check(hook, table, given, result, staying)
    arrays = [
        pa.nulls(len(given), field.type) if i in staying else result[field.name].cast(field.type)
        for i, field in enumerate(table.fields)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=table.fields)


def transform_changes(hook: Hook, table: HookedTable, after: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Transform changes: their new rows and whole old ones. An old key keeps its columns, and has no others."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    old = columns["old"]
    columns["row"], columns["unchanged"] = _new_rows(hook, table, columns["row"], columns["unchanged"])
    if table.whole_old_rows:
        columns["old"] = _spread(transform_rows(hook, table, _flat(old.filter(old.is_valid()))), old.is_valid())
    else:
        columns["old"] = _old_keys(table, old)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=after)


def kept_aside(table: HookedTable, rejected: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Keep the values set aside of columns that go on as they are: others may be gone for a reason."""
    del rows
    kept = sorted(table.kept)
    values = pa.array(kept, pa.string())
    rejected = rejected.filter(pc.is_in(rejected["column"], values))
    names = pa.array([table.kept[name] for name in kept], pa.string())
    at = rejected.schema.get_field_index("column")
    return rejected.set_column(at, rejected.schema.field(at), names.take(pc.index_in(rejected["column"], values)))


def _check(
    hook: Hook, table: HookedTable, given: pa.RecordBatch, result: pa.RecordBatch, staying: Sequence[int]
) -> None:
    """Require the columns that the function returned for sample rows, and the keys that it was given."""
    needed = [field for i, field in enumerate(table.made) if i not in staying]
    problems = list(_problems(table, needed, result.schema))
    if problems:
        msg = f"{hook.of(table.source)} returns something else than for sample rows"
        hint = f"return the same columns with the same types whatever the rows are, restart, then run: {RESYNC}"
        raise DestinationRejected(msg, detail="; ".join(problems), hint=hint)
    names = {field.name for field in needed}
    for column in table.key:
        if table.kept[column] in names and not result[table.kept[column]].equals(given[column]):
            msg = f"{hook.of(table.source)} changes values of {column}, which is part of the table's key, or the order"
            raise DestinationRejected(msg, hint="return the columns of the key as they are, and rows in their order")


def _problems(table: HookedTable, needed: Sequence[pa.Field], found: pa.Schema) -> Iterator[str]:
    yield from (f"a column {name} more" for name in found.names if name not in table.made.names)
    for field in needed:
        if field.name not in found.names:
            yield f"no column {field.name}"
        elif found.types[found.names.index(field.name)] not in (field.type, pa.null()):
            yield f"column {field.name} as {found.types[found.names.index(field.name)]}, not {field.type}"


def _new_rows(
    hook: Hook, table: HookedTable, row: pa.StructArray, unchanged: pa.ListArray
) -> tuple[pa.StructArray, pa.ListArray]:
    """Transform new rows, together as far as the same columns of them were sent."""
    valid = row.is_valid()
    known, lists = _flat(row.filter(valid)), unchanged.filter(valid)
    groups, parts, stays = _groups(lists), [], []
    for indexes in groups:
        unsent = frozenset(table.source.columns[i].name for i in lists[int(indexes[0])].as_py() or ())
        some = known if len(groups) == 1 else known.take(pa.array(indexes))
        parts.append(transform_known(hook, table, some, unsent))
        stays.append(list(table.staying(unsent)) or None)
    if not groups:
        return _spread(pa.RecordBatch.from_pylist([], schema=table.fields), valid), unchanged
    # Groups lie one behind the other: where each row's own is, and in which of them.
    places = np.argsort(np.concatenate(groups))
    numbers = np.repeat(np.arange(len(groups)), [len(indexes) for indexes in groups])
    made = parts[0]
    if len(groups) > 1:
        (made,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
        made = made.take(pa.array(places))
    group_of = pa.array(numbers[places]).take(_positions(valid))
    return _spread(made, valid), pa.array(stays, unchanged.type).take(group_of)


def _groups(lists: pa.ListArray) -> list[_Indexes]:
    """The indexes of rows with the same list: a step for each column that is in any, none for each row."""
    if lists.null_count == len(lists):
        return [np.arange(len(lists))] if len(lists) else []
    lengths: _Indexes = lists.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    owners, positions = np.repeat(np.arange(len(lists)), lengths), lists.flatten().to_numpy()
    group: _Indexes = np.zeros(len(lists), np.int64)
    for position in np.unique(positions):
        has = np.zeros(len(lists), np.int64)
        has[owners[positions == position]] = 1
        group = np.unique(2 * group + has, return_inverse=True)[1].astype(np.int64)
    return [np.flatnonzero(group == number) for number in range(int(group.max()) + 1)]


def _old_keys(table: HookedTable, old: pa.StructArray) -> pa.StructArray:
    places = {field.name: i for i, field in enumerate(old.type)}
    identity = {column.name for column in table.source.identity}
    sent = {table.kept[name]: old.field(places[name]) for name in table.kept if name in identity}
    arrays = [sent.get(field.name, pa.nulls(len(old), field.type)) for field in table.fields]
    return pa.StructArray.from_arrays(arrays, fields=list(table.fields), mask=old.is_null())


def _flat(rows: pa.StructArray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(rows.flatten(), names=[field.name for field in rows.type])


def _spread(rows: pa.RecordBatch, valid: pa.BooleanArray) -> pa.StructArray:
    """Put the rows where `valid` is true; NULL elsewhere."""
    columns = rows.take(_positions(valid)).columns
    return pa.StructArray.from_arrays(columns, fields=list(rows.schema), mask=pc.invert(valid))


def _positions(valid: pa.BooleanArray) -> pa.Int64Array:
    present = valid.to_numpy(zero_copy_only=False)
    return pa.array(np.cumsum(present) - 1, pa.int64(), mask=~present)
