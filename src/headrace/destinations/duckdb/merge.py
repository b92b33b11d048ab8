"""Folded changes into a table of current rows, by statements over sets of rows: see `destinations.fold`.

Everything is read as it was before the step. Rows come in columns c0, c1, … by the position they have at the source, so
that no name of theirs meets one of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from ...errors import DestinationError, DestinationRejected, RetryPolicy, TableSchemaChanged
from ...remedies import RESYNC
from ...schema import ReplicatedTableSchema
from ..fold import fold_key
from ..soft_delete import DELETED, DELETED_AT
from .columns import listed, quoted
from .database import Session
from .existing import typed
from .record import RecordedColumn

__all__ = ["TableMerge", "truncate"]

_ROWS, _CHANGES, _COMPLETED = "_headrace_rows", "_headrace_changes", "_headrace_completed"


@dataclass(frozen=True, slots=True)
class TableMerge:
    """Writes to one table, whose columns are those of the batch's end."""

    session: Session
    table: str
    """In SQL."""
    columns: Sequence[RecordedColumn]
    existing: Mapping[int, str | None]
    """What a row shows, as SQL, in a column that came after it, by attnum; None: NULL."""
    soft_delete: bool

    def apply(self, source: ReplicatedTableSchema, folded: Iterable[pa.RecordBatchReader]) -> None:
        """The folded changes of one schema version.

        All at once, as what one row takes from another's former state must still be there; so they are put down at
        DuckDB first, which needs no memory for them.
        """
        names: list[str] | None = None
        for piece in folded:
            make = f"CREATE OR REPLACE TEMP TABLE {_CHANGES} AS" if names is None else f"INSERT INTO {_CHANGES}"
            names = piece.schema.field("row").type.names
            with self.session.given(_ROWS, _flat(piece)):
                self.session.run(f"{make} FROM {_ROWS}")
        if names is None:
            return
        step = _Step(self, source, names)
        if step.key is None:
            step.without_key()
        else:
            step.by_key(step.key)
        self.session.run(f"DROP TABLE {_CHANGES}")


class _Step:
    def __init__(self, merge: TableMerge, source: ReplicatedTableSchema, names: Sequence[str]) -> None:
        self.merge, self.source = merge, source
        self._session, self._table = merge.session, merge.table
        self.inputs = {source.table.column(name).attnum: f"c{place}" for place, name in enumerate(names)}
        self.columns = {column.attnum: column for column in merge.columns}
        key = fold_key(source)
        self.key = None if key is None else [source.table.column(name).attnum for name in key]
        if not self.columns.keys() >= set(self.key or ()):
            msg = f"a column of the key of table {source.table.name} came and went within one batch"
            raise TableSchemaChanged(msg)

    def by_key(self, key: Sequence[int]) -> None:
        lacks = self._any("op <> 'D' AND unchanged IS NOT NULL")
        if lacks:
            self._complete(key)
        if self.merge.soft_delete:
            self._flag(key)
            # A row of an insert's key may be there: one that was deleted at the source.
            self._delete(key, "op <> 'D'")
        else:
            self._delete(key, "op <> 'I'")
        if lacks:
            self._insert(_COMPLETED, "found", [f"c.x{place}" for place in range(len(self.merge.columns))])
            self._session.run(f"DROP TABLE {_COMPLETED}")
        whole = "op <> 'D' AND unchanged IS NULL"
        self._insert(_CHANGES, whole, [self._expression(column) for column in self.merge.columns])

    def without_key(self) -> None:
        if self._any("op = 'D'"):
            self._take_equal()
        self._insert(_CHANGES, "op <> 'D'", [self._expression(column) for column in self.merge.columns])

    def _any(self, where: str, rows: str = _CHANGES) -> bool:
        return bool(self._session.rows(f"SELECT 1 FROM {rows} WHERE {where} LIMIT 1"))

    def _expression(self, column: RecordedColumn) -> str:
        given = self.inputs.get(column.attnum)
        return typed(self.merge.existing.get(column.attnum) if given is None else f"c.{given}", column.type)

    def _insert(self, rows: str, where: str, expressions: Sequence[str]) -> None:
        # An insert of nothing could still make a file, in a lake.
        if not self._any(where, rows):
            return
        names = [column.name for column in self.merge.columns]
        values = list(expressions)
        if self.merge.soft_delete:
            names, values = [*names, DELETED, DELETED_AT], [*values, "FALSE", "NULL"]
        self._session.run(
            f"INSERT INTO {self._table} ({listed(names)}) SELECT {', '.join(values)} FROM {rows} AS c WHERE {where}"
        )

    def _same_key(self, key: Sequence[int]) -> str:
        pairs = ((quoted(self.columns[attnum].name), self.inputs[attnum]) for attnum in key)
        return " AND ".join(f"t.{name} = c.{given}" for name, given in pairs)

    def _delete(self, key: Sequence[int], where: str) -> None:
        # Inserts alone need no look at the table.
        if self._any(where):
            self._session.run(
                f"DELETE FROM {self._table} AS t USING {_CHANGES} AS c WHERE c.{where} AND {self._same_key(key)}"
            )

    def _flag(self, key: Sequence[int]) -> None:
        if self._any("op = 'D'"):
            self._session.run(
                f"UPDATE {self._table} AS t SET {quoted(DELETED)} = TRUE, {quoted(DELETED_AT)} = c.commit_time "
                f"FROM {_CHANGES} AS c WHERE c.op = 'D' AND {self._same_key(key)}"
            )

    def _complete(self, key: Sequence[int]) -> None:
        """Put down, as x0, x1, …, rows that lack values, with those that the table has under the key of before."""
        lacking = f"{_CHANGES} WHERE op <> 'D' AND unchanged IS NOT NULL"
        places = {place for (place,) in self._session.rows(f"SELECT DISTINCT unnest(unchanged) FROM {lacking}")}
        values = [self._kept(column, places) for column in self.merge.columns]
        # The key that the row had, where it is not its own.
        own = ", ".join(f"CASE WHEN moved THEN o{n} ELSE {self.inputs[a]} END AS k{n}" for n, a in enumerate(key))
        same = " AND ".join(f"t.{quoted(self.columns[a].name)} = c.k{n}" for n, a in enumerate(key))
        found = f"t.{quoted(self.columns[key[0]].name)} IS NOT NULL"
        self._session.run(
            f"CREATE OR REPLACE TEMP TABLE {_COMPLETED} AS "
            f"SELECT {found} AS found, {', '.join(f'{v} AS x{n}' for n, v in enumerate(values))} "
            f"FROM (SELECT *, {own} FROM {lacking}) AS c LEFT JOIN {self._table} AS t ON {same}"
        )
        ((missing,),) = self._session.rows(f"SELECT count(*) FROM {_COMPLETED} WHERE NOT found")
        if missing:
            raise DestinationError(
                f"table {self._table} lacks {missing} rows that were updated at the source",
                detail="Postgres did not send large values that stayed as they were, and the rows that have them are "
                "not in the table: a filter left them out until now, or rows were deleted here by somebody else",
                hint=f"copy the table again: {RESYNC}; if it has a filter, give it REPLICA IDENTITY FULL first",
                retry=RetryPolicy.MANUAL,
            )

    def _kept(self, column: RecordedColumn, places: set[int]) -> str:
        given = self.inputs.get(column.attnum)
        own = self._expression(column)
        if given is None or int(given[1:]) not in places:
            return own
        unchanged = f"coalesce(list_contains(c.unchanged, {given[1:]}), FALSE)"
        return f"CASE WHEN {unchanged} THEN t.{quoted(column.name)} ELSE {own} END"

    def _take_equal(self) -> None:
        """As many rows as counted, of those that equal each."""
        if any(column.name.casefold() == "rowid" for column in self.merge.columns):
            msg = f"table {self.source.table.name} has no key, and a column rowid, the name by which DuckDB tells rows"
            hint = "give the table a primary key, or rename the column"
            raise DestinationRejected(msg, hint=hint)
        found_by = [column.attnum for column in self.source.found_by if column.attnum in self.columns]
        shared = [(self.columns[attnum], self.inputs[attnum]) for attnum in found_by]
        same = [_equal(f"t.{quoted(column.name)}", f"c.{given}", column.type) for column, given in shared]
        if self.merge.soft_delete:
            same.append(f"NOT t.{quoted(DELETED)}")
        # Rows that differed in a column that is gone are equal now.
        telling = "".join(f"{term}, " for column, given in shared for term in _telling(given, column.type))
        gone = f"SELECT {telling}max(commit_time) AS commit_time, sum(count) AS wanted FROM {_CHANGES} WHERE op = 'D'"
        found = (
            f"SELECT place, commit_time FROM (SELECT t.rowid AS place, c.commit_time, c.wanted, "
            f"row_number() OVER (PARTITION BY c.n) AS nth FROM {self._table} AS t "
            f"JOIN (SELECT *, row_number() OVER () AS n FROM ({gone} GROUP BY ALL)) AS c "
            f"ON {' AND '.join(same) or 'TRUE'}) WHERE nth <= wanted"
        )
        if self.merge.soft_delete:
            self._session.run(
                f"UPDATE {self._table} AS t SET {quoted(DELETED)} = TRUE, {quoted(DELETED_AT)} = f.commit_time "
                f"FROM ({found}) AS f WHERE t.rowid = f.place"
            )
        else:
            self._session.run(f"DELETE FROM {self._table} AS t USING ({found}) AS f WHERE t.rowid = f.place")


def truncate(session: Session, table: str, moment: datetime, *, soft_delete: bool) -> None:
    """Empty the table, or flag all its rows as deleted."""
    if not soft_delete:
        session.run(f"DELETE FROM {table}")
        return
    session.run(
        f"UPDATE {table} SET {quoted(DELETED)} = TRUE, {quoted(DELETED_AT)} = ? WHERE NOT {quoted(DELETED)}", [moment]
    )


def _equal(one: str, other: str, kind: str) -> str:
    """NULL equals NULL. Zeros of both signs are equal to DuckDB, but not one value."""
    pairs = zip(_telling(one, kind), _telling(other, kind), strict=True)
    return " AND ".join(f"{a} IS NOT DISTINCT FROM {b}" for a, b in pairs)


def _telling(value: str, kind: str) -> Sequence[str]:
    """What tells values of a type apart."""
    if kind in ("FLOAT", "DOUBLE"):
        return (value, f"signbit({value})")
    # The text shows the signs of all zeros of a list.
    return (value, f"CAST({value} AS VARCHAR)") if kind in ("FLOAT[]", "DOUBLE[]") else (value,)


def _flat(folded: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The columns of `row` as c0, c1, …; those of `origin` as o0, o1, …, and whether there is one."""
    batches = map(_flat_batch, folded)
    empty = _flat_batch(pa.RecordBatch.from_pylist([], schema=folded.schema))
    return pa.RecordBatchReader.from_batches(empty.schema, batches)


def _flat_batch(folded: pa.RecordBatch) -> pa.RecordBatch:
    columns = {name: folded[name] for name in ("op", "commit_time", "count", "unchanged")}
    columns |= {f"c{place}": values for place, values in enumerate(folded["row"].flatten())}
    if "origin" in folded.schema.names:
        origin = folded["origin"]
        columns["moved"] = origin.is_valid()
        columns |= {f"o{place}": values for place, values in enumerate(origin.flatten())}
    return pa.record_batch(columns)
