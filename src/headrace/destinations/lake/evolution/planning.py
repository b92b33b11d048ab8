"""What is to be done to a table so that it looks like its source: from any state of it, by attnum, repeatably."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...change_log import BEFORE, SCHEMA_VERSION
from ...soft_delete import DELETED_FIELDS
from .alteration import Alteration, CannotAlter, Draft
from .column_record import COLUMNS, ColumnRecord, RecordedColumn
from .field_types import id_count
from .wanted import WantedColumn

__all__ = ["Definition", "altered_log", "altered_table", "replaced_table"]

_DELETED = frozenset(field.name for field in DELETED_FIELDS)


@dataclass(frozen=True, slots=True)
class Definition:
    """What a table has of its schema."""

    schema_json: str
    last_id: int
    """The highest field id ever given."""
    record: ColumnRecord
    pinned: frozenset[int] = frozenset()
    """Fields that partitions and the sort order are made from."""

    @property
    def schema(self) -> dict[str, Any]:
        return dict(json.loads(self.schema_json))

    def after(self, alteration: Alteration) -> Definition:
        added = (entry.entry for entry in alteration.added)
        last = max([self.last_id, *(_highest(entry) for entry in added)])
        return replace(self, schema_json=alteration.schema_json, last_id=last, record=alteration.record)


def altered_table(
    there: Definition, wanted: Sequence[WantedColumn], properties: Mapping[str, str | None], *, may_require: bool
) -> Alteration:
    """For a table of current rows, which are kept. Raises CannotAlter. `may_require`: no row lacks a key's value."""
    draft, ids = Draft(there.schema, there.last_id, there.pinned), there.record.ids()
    for column in wanted:
        field = draft.field(ids.get(column.attnum, -1))
        if field is not None and not column.fits(field["type"]) and not column.widens(field["type"]):
            msg = f"column {column.name} cannot become {column.type} from {field['type']}"
            raise CannotAlter(msg)
    attnums = {column.attnum for column in wanted}
    for attnum, number in ids.items():
        if attnum not in attnums and draft.field(number) is not None:
            draft.delete(number)
    added = {column.attnum for column in wanted if draft.field(ids.get(column.attnum, -1)) is None}
    altered = _finished(
        draft,
        [(column, None if column.attnum in added else ids[column.attnum]) for column in wanted],
        {column.attnum: column.entry_for_old_rows() for column in wanted if column.attnum in added},
        properties,
        may_require=may_require,
    )
    filled = tuple(column.source for column in wanted if column.attnum in added and column.is_filled)
    return replace(altered, filled=filled)


def replaced_table(
    there: Definition, wanted: Sequence[WantedColumn], properties: Mapping[str, str | None]
) -> Alteration:
    """For a table of which all rows are replaced. Raises CannotAlter for partitions whose column goes."""
    draft, ids = Draft(there.schema, there.last_id, there.pinned), there.record.ids()
    placed: list[tuple[WantedColumn, int | None]] = []
    for column in wanted:
        field = draft.field(ids.get(column.attnum, -1))
        usable = field is not None and (column.fits(field["type"]) or column.widens(field["type"]))
        placed.append((column, ids[column.attnum] if usable else None))
    kept = {number for _, number in placed}
    for number, field in draft.fields.items():
        if number not in kept and field["name"] not in _DELETED:
            draft.delete(number)
    entries = {column.attnum: column.entry() for column, number in placed if number is None}
    return _finished(draft, placed, entries, properties, may_require=True)


def _finished(
    draft: Draft,
    placed: Iterable[tuple[WantedColumn, int | None]],
    entries: Mapping[int, Mapping[str, Any]],
    properties: Mapping[str, str | None],
    *,
    may_require: bool,
) -> Alteration:
    recorded, key = [], []
    for column, found in placed:
        number = draft.add(entries[column.attnum]) if found is None else _kept(draft, found, column)
        recorded.append(RecordedColumn(column.attnum, number))
        if column.in_key:
            key.append(number)
    draft.identify(key, may_require=may_require)
    # A column that is replaced by one of another type would stand behind those it stood in front of.
    draft.order([column.id for column in recorded])
    record = ColumnRecord(tuple(recorded))
    return draft.finish(record, {**properties, COLUMNS: record.text()})


def _kept(draft: Draft, number: int, column: WantedColumn) -> int:
    draft.rename(number, column.name)
    draft.describe(number, column.source.comment)
    field = draft.field(number)
    if field is not None and not column.fits(field["type"]):
        draft.widen(number, column.type)
    return number


def altered_log(there: Definition, wanted: Sequence[WantedColumn], properties: Mapping[str, str | None]) -> Alteration:
    """For a change log, which keeps every column it ever had."""
    # A column that a partition is made from may be widened: its values, and so the partitions, stay the same.
    draft = Draft(there.schema, there.last_id)
    before = next((number for number, field in draft.fields.items() if field["name"] == BEFORE), None)
    placed = [(column, _recorded(draft, there.record, column)) for column in wanted]
    kept = {found.id for _, found in placed if found is not None}
    stale = [replace(column, live=False) for column in there.record.columns if column.id not in kept]
    _step_aside(draft, before, kept, [column.name for column in wanted], there.record)
    recorded = []
    for column, found in placed:
        if found is None:
            number = draft.add(column.entry())
            old = None if before is None else draft.add({"name": column.name, "type": column.sent_type}, before)
            recorded.append(RecordedColumn(column.attnum, number, old))
        else:
            _kept(draft, found.id, column)
            if found.before is not None:
                draft.rename(found.before, column.name)
                _widen(draft, found.before, column)
            recorded.append(found)
    # Logs made by earlier versions have it not.
    if SCHEMA_VERSION not in {field["name"] for field in draft.fields.values()}:
        draft.add({"name": SCHEMA_VERSION, "type": "long"})
    record = ColumnRecord((*recorded, *stale))
    return draft.finish(record, {**properties, COLUMNS: record.text()})


def _recorded(draft: Draft, record: ColumnRecord, column: WantedColumn) -> RecordedColumn | None:
    """The column's place, if it can go on there. It may have been away for a while."""
    for found in sorted(record.columns, key=lambda one: (one.live, one.id), reverse=True):
        field = draft.field(found.id) if found.attnum == column.attnum else None
        if field is not None and (column.fits(field["type"]) or column.widens(field["type"])):
            return replace(found, live=True)
    return None


def _widen(draft: Draft, number: int, column: WantedColumn) -> None:
    field = draft.field(number)
    if field is not None and not column.fits(field["type"]):
        draft.widen(number, column.type)


def _step_aside(draft: Draft, before: int | None, kept: set[int], names: Sequence[str], record: ColumnRecord) -> None:
    """Columns that stay, and whose name another one needs, get a name of their own."""
    attnums = {column.id: column.attnum for column in record.columns}
    olds = {column.before for column in record.columns if column.id in kept}
    levels = [(draft.fields, kept, attnums)]
    if before is not None:
        children = {child["id"]: child for child in draft.fields[before]["type"]["fields"]}
        of_olds = {column.before: column.attnum for column in record.columns if column.before is not None}
        levels.append((children, {number for number in olds if number is not None}, of_olds))
    for fields, staying, attnum_of in levels:
        taken = {field["name"] for field in fields.values()} | set(names)
        for number, field in fields.items():
            if field["name"] in names and number not in staying:
                name = field["name"]
                while name in taken:
                    name = f"{name}_{attnum_of.get(number, number)}"
                taken.add(name)
                draft.rename(number, name)


def _highest(entry: Mapping[str, Any]) -> int:
    return int(entry["id"]) + id_count(entry["type"])
