"""Rows of a change log into its table, whatever columns it has had since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ...schema import ReplicatedTableSchema
from ..change_log import BEFORE, SCHEMA_VERSION, change_log_schema, logged_copy_again
from .alteration import altered_log
from .columns import listed, quoted, wanted_columns, widens
from .database import Session
from .existing import typed
from .places import literal
from .record import RecordedColumn, TableRecord

__all__ = ["LogTable", "copied_again"]

_ROWS = "_headrace_rows"


@dataclass(frozen=True, slots=True)
class LogTable:
    """Writes to one log, whose columns are those of the batch's end."""

    session: Session
    table: str
    columns: Sequence[RecordedColumn]

    def add(self, source: ReplicatedTableSchema, rows: pa.RecordBatchReader, version: int | None = None) -> None:
        """Rows with columns of `change_log_schema`; `version` is that of the source's schema, if not in them."""
        places = self._places(source)
        given = rows.schema.names
        inputs = {name: f"x{place}" for place, name in enumerate(given)}
        values: dict[str, str] = {}
        for name in given:
            if name in places:
                place = places[name]
                values[place.name] = typed(inputs[name], place.type)
            else:
                values[name] = inputs[name]
        if BEFORE in inputs:
            values[BEFORE] = self._before(inputs[BEFORE], places)
        if version is not None:
            values[SCHEMA_VERSION] = str(version)
        renamed = pa.RecordBatchReader.from_batches(
            pa.schema([field.with_name(inputs[field.name]) for field in rows.schema]),
            (batch.rename_columns(list(inputs.values())) for batch in rows),
        )
        with self.session.given(_ROWS, renamed):
            self.session.run(
                f"INSERT INTO {self.table} ({listed(values)}) SELECT {', '.join(values.values())} FROM {_ROWS}"
            )

    def add_truncate(self, source: ReplicatedTableSchema, row: Callable[[pa.Schema], pa.RecordBatch]) -> None:
        """The one row that it makes, for a schema without columns of the source."""
        # A struct without fields, which DuckDB does not know, is left out: it is NULL.
        schema = change_log_schema(pa.schema([]))
        schema = schema.remove(schema.get_field_index(BEFORE))
        without = replace(source, mask=replace(source.mask, attnums=frozenset()))
        self.add(without, pa.RecordBatchReader.from_batches(schema, [row(schema)]))

    def _places(self, source: ReplicatedTableSchema) -> dict[str, RecordedColumn]:
        """Where each column of the source's version is now, by its name here then.

        It may stand aside since its type changed.
        """
        places = {}
        for wanted in wanted_columns(source):
            own = [column for column in self.columns if column.attnum == wanted.attnum]
            same = [column for column in own if column.type == wanted.type]
            wider = [column for column in own if widens(wanted.type, column.type)]
            places[wanted.name] = (same + wider)[0]
        return places

    def _before(self, given: str, places: dict[str, RecordedColumn]) -> str:
        sources = {place.name: name for name, place in places.items()}
        fields = []
        for column in self.columns:
            name = sources.get(column.name)
            value = None if name is None else f"struct_extract({given}, {literal(name)})"
            fields.append(f"{quoted(column.name)} := {typed(value, column.type)}")
        return f"CASE WHEN {given} IS NULL THEN NULL ELSE struct_pack({', '.join(fields)}) END"


def copied_again(session: Session, table: str, record: TableRecord, source: ReplicatedTableSchema) -> TableRecord:
    """Make a log take the rows of a new copy, at the position that its stale record has as its version."""
    altered = altered_log(record.columns, wanted_columns(source))
    for statement in altered.statements:
        session.run(f"ALTER TABLE {table} {statement}")
    LogTable(session, table, altered.columns).add_truncate(
        source, lambda schema: logged_copy_again(schema, record.schema_version)
    )
    return replace(record, columns=altered.columns, source=str(source.table.name), stale=False)
