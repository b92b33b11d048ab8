"""Folded changes into a table of current rows, by statements over sets of rows: see `destinations.fold`.

Everything is read as it was before the step. Rows come in columns c0, c1, … by the position they have at the source, so
that no name of theirs meets one of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import DestinationError, DestinationRejected, RetryPolicy
from ...schema import ReplicatedTableSchema
from ..fold import fold_key
from ..soft_delete import DELETED, DELETED_AT
from .columns import listed, quoted
from .database import Session
from .existing import typed
from .record import RecordedColumn

__all__ = ["TableMerge", "truncate"]

_ROWS, _GONE = "_headrace_rows", "_headrace_gone"


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

    def apply(self, source: ReplicatedTableSchema, folded: pa.Table) -> None:
        """The folded changes of one schema version."""
        if not folded.num_rows:
            return
        step = _Step(self, source, folded)
        if step.key is None:
            step.without_key()
        else:
            step.by_key(step.key)


class _Step:
    def __init__(self, merge: TableMerge, source: ReplicatedTableSchema, folded: pa.Table) -> None:
        self.merge, self.source = merge, source
        self._session, self._table = merge.session, merge.table
        names = folded.schema.field("row").type.names
        self.inputs = {source.table.column(name).attnum: f"c{place}" for place, name in enumerate(names)}
        self.columns = {column.attnum: column for column in merge.columns}
        key = fold_key(source)
        self.key = None if key is None else [source.table.column(name).attnum for name in key]
        if not self.columns.keys() >= set(self.key or ()):
            msg = f"a column of the key of table {source.table.name} came and went within one batch"
            raise DestinationRejected(msg, hint=f"copy it again: headrace resync PIPELINE.YAML {source.table.name}")
        self.changes = _flat(folded)

    def by_key(self, key: Sequence[int]) -> None:
        op, rows = self.changes["op"], self.changes.filter(pc.not_equal(self.changes["op"], "D"))
        lacking = rows.filter(rows["unchanged"].is_valid())
        completed = self._completed(key, lacking) if lacking.num_rows else None
        if self.merge.soft_delete:
            self._flag(key, self.changes.filter(pc.equal(op, "D")))
            # A row of an insert's key may be there: one that was deleted at the source.
            self._delete(key, rows)
        else:
            self._delete(key, self.changes.filter(pc.not_equal(op, "I")))
        if completed is not None:
            self._insert(completed, [f"x{place}" for place in range(len(self.merge.columns))])
            rows = rows.filter(rows["unchanged"].is_null())
        self._insert(rows, [self._expression(column) for column in self.merge.columns])

    def without_key(self) -> None:
        gone = pc.equal(self.changes["op"], "D")
        if pc.any(gone).as_py():
            self._take_equal(self.changes.filter(gone))
        rows = self.changes.filter(pc.invert(gone))
        self._insert(rows, [self._expression(column) for column in self.merge.columns])

    def _expression(self, column: RecordedColumn) -> str:
        given = self.inputs.get(column.attnum)
        return typed(self.merge.existing.get(column.attnum) if given is None else f"c.{given}", column.type)

    def _insert(self, rows: pa.Table, expressions: Sequence[str]) -> None:
        if not rows.num_rows:
            return
        names = [column.name for column in self.merge.columns]
        values = list(expressions)
        if self.merge.soft_delete:
            names, values = [*names, DELETED, DELETED_AT], [*values, "FALSE", "NULL"]
        with self._session.given(_ROWS, rows):
            self._session.run(
                f"INSERT INTO {self._table} ({listed(names)}) SELECT {', '.join(values)} FROM {_ROWS} AS c"
            )

    def _same_key(self, key: Sequence[int], prefix: str = "c.") -> str:
        pairs = ((quoted(self.columns[attnum].name), self.inputs[attnum]) for attnum in key)
        return " AND ".join(f"t.{name} = {prefix}{given}" for name, given in pairs)

    def _delete(self, key: Sequence[int], changes: pa.Table) -> None:
        if changes.num_rows:
            with self._session.given(_GONE, changes.select([self.inputs[attnum] for attnum in key])):
                self._session.run(f"DELETE FROM {self._table} AS t USING {_GONE} AS c WHERE {self._same_key(key)}")

    def _flag(self, key: Sequence[int], gone: pa.Table) -> None:
        if gone.num_rows:
            with self._session.given(_GONE, gone.select(["commit_time", *(self.inputs[attnum] for attnum in key)])):
                self._session.run(
                    f"UPDATE {self._table} AS t SET {quoted(DELETED)} = TRUE, {quoted(DELETED_AT)} = c.commit_time "
                    f"FROM {_GONE} AS c WHERE {self._same_key(key)}"
                )

    def _completed(self, key: Sequence[int], lacking: pa.Table) -> pa.Table:
        """Rows that lack values, with those that the table has, under the key from before the batch; as x0, x1, …"""
        places = set(pc.unique(pc.list_flatten(lacking["unchanged"])).to_pylist())
        values = [self._kept(column, places) for column in self.merge.columns]
        # The key that the row had, where it is not its own.
        own = ", ".join(f"CASE WHEN moved THEN o{n} ELSE {self.inputs[a]} END AS k{n}" for n, a in enumerate(key))
        same = " AND ".join(f"t.{quoted(self.columns[a].name)} = c.k{n}" for n, a in enumerate(key))
        found = f"t.{quoted(self.columns[key[0]].name)} IS NOT NULL"
        with self._session.given(_ROWS, lacking):
            completed = self._session.table(
                f"SELECT {found} AS found, {', '.join(f'{v} AS x{n}' for n, v in enumerate(values))} "
                f"FROM (SELECT *, {own} FROM {_ROWS}) AS c LEFT JOIN {self._table} AS t ON {same}"
            )
        missing = completed.num_rows - pc.sum(completed["found"]).as_py()
        if missing:
            raise DestinationError(
                f"table {self._table} lacks {missing} rows that were updated at the source",
                detail="Postgres did not send large values that stayed as they were, and the rows that have them are "
                "not in the table: a filter left them out until now, or rows were deleted here by somebody else",
                hint=f"copy the table again: headrace resync PIPELINE.YAML {self.source.table.name}; "
                "if it has a filter, give it REPLICA IDENTITY FULL first",
                retry=RetryPolicy.MANUAL,
            )
        return completed

    def _kept(self, column: RecordedColumn, places: set[int]) -> str:
        given = self.inputs.get(column.attnum)
        own = self._expression(column)
        if given is None or int(given[1:]) not in places:
            return own
        unchanged = f"coalesce(list_contains(c.unchanged, {given[1:]}), FALSE)"
        return f"CASE WHEN {unchanged} THEN t.{quoted(column.name)} ELSE {own} END"

    def _take_equal(self, gone: pa.Table) -> None:
        """As many rows as counted, of those that equal each."""
        if any(column.name.casefold() == "rowid" for column in self.merge.columns):
            msg = f"table {self.source.table.name} has no key, and a column rowid, the name by which DuckDB tells rows"
            hint = "give the table a primary key, or rename the column"
            raise DestinationRejected(msg, hint=hint)
        shared = [(self.columns[a], given) for a, given in self.inputs.items() if a in self.columns]
        same = [_equal(f"t.{quoted(column.name)}", f"c.{given}", column.type) for column, given in shared]
        if self.merge.soft_delete:
            same.append(f"NOT t.{quoted(DELETED)}")
        numbered = gone.append_column("n", pa.array(np.arange(gone.num_rows)))
        found = (
            f"SELECT place, commit_time FROM (SELECT t.rowid AS place, c.commit_time, c.count AS wanted, "
            f"row_number() OVER (PARTITION BY c.n) AS nth FROM {self._table} AS t JOIN {_GONE} AS c "
            f"ON {' AND '.join(same)}) WHERE nth <= wanted"
        )
        with self._session.given(_GONE, numbered):
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
    same = f"{one} IS NOT DISTINCT FROM {other}"
    return f"{same} AND signbit({one}) IS NOT DISTINCT FROM signbit({other})" if kind in ("FLOAT", "DOUBLE") else same


def _flat(folded: pa.Table) -> pa.Table:
    """The columns of `row` as c0, c1, …; those of `origin` as o0, o1, …, and whether there is one."""
    envelope = folded.select(["op", "commit_time", "count", "unchanged"])
    row = folded["row"].combine_chunks().flatten()
    columns = {**dict(zip(envelope.column_names, envelope.columns, strict=True))}
    columns |= {f"c{place}": values for place, values in enumerate(row)}
    if "origin" in folded.schema.names:
        origin = folded["origin"].combine_chunks()
        columns["moved"] = origin.is_valid()
        columns |= {f"o{place}": values for place, values in enumerate(origin.flatten())}
    return pa.table(columns)
