"""Keeps tables by reading lines of JSON: what a program behind `stdout` would do, knowing only what the lines say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.lsn import INVALID_LSN, Lsn

__all__ = ["LineReader"]

_Line = Mapping[str, Any]
_Row = dict[int, Any]
"""Values by attnum: a column keeps it when it is renamed."""


class LineReader:
    """The tables as the last whole transaction left them. What comes again has no effect."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self._transaction: list[_Line] = []

    def feed(self, lines: Iterable[str]) -> None:
        for line in map(json.loads, lines):
            kind = line["kind"]
            if kind == "drop":
                self._tables = {name: table for name, table in self._tables.items() if table.oid != line["oid"]}
            elif kind == "copy":
                self._copied(line).begin_part(line)
            elif kind == "row":
                self._tables[line["table"]].copied(line["row"])
            elif kind == "rejected" and "commit_lsn" not in line:
                self._tables[line["table"]].set_aside(line)
            elif kind == "begin":
                # One that was begun before and never committed was cut off, and comes again.
                self._transaction = []
            elif kind == "commit":
                self._commit(Lsn.parse(line["commit_lsn"]))
            else:
                self._transaction.append(line)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Raises KeyError if there is no such table."""
        return self._tables[table].rows()

    def rejected(self, table: str) -> list[dict[str, Any]]:
        """With the fields of a quarantine. Raises KeyError if there is no such table."""
        return self._tables[table].rejected()

    def _copied(self, line: _Line) -> _Table:
        known = self._tables.get(line["table"])
        if known is None or known.oid != line["oid"]:
            known = self._tables[line["table"]] = _Table(line["oid"])
        return known

    def _commit(self, place: Lsn) -> None:
        # Each table by itself: one that is catching up has its part of a transaction told later than others.
        new = {name for name, table in self._tables.items() if table.applied < place}
        told = set()
        for line in self._transaction:
            if line["kind"] == "relation" and line.get("was") in new:
                self._tables[line["table"]] = self._tables.pop(line["was"])
                new.add(line["table"])
            for name in new.intersection(line.get("tables", [line.get("table")])):
                self._tables[name].change(line)
                told.add(name)
        for name in told & self._tables.keys():
            self._tables[name].applied = place
        self._transaction = []


class _Table:
    def __init__(self, oid: int) -> None:
        self.oid = oid
        self.applied = INVALID_LSN
        self._columns: list[_Line] = []
        self._identity: list[str] = []
        self._part = 0
        self._copied: dict[int, list[_Row]] = {}
        """By part: one that comes again takes the place of itself."""
        self._held: dict[str, list[_Row]] = {}
        """By identity; rows without key may be equal."""
        self._rejected: dict[int | None, list[_Line]] = {}
        """By part, as rows are; those of changes under None."""

    def begin_part(self, line: _Line) -> None:
        self._columns, self._identity, self._part = line["columns"], line["identity"], line["part"]
        self._copied[self._part] = []
        self._rejected[self._part] = []

    def copied(self, row: _Line) -> None:
        self._copied[self._part].append(self._by_attnum(row))

    def rows(self) -> list[dict[str, Any]]:
        shown = [(column["name"], column["type"], column["attnum"]) for column in self._columns]
        return [{name: _value(kind, row[attnum]) for name, kind, attnum in shown} for row in self._all()]

    def set_aside(self, line: _Line) -> None:
        streamed = "commit_lsn" in line
        self._rejected.setdefault(None if streamed else self._part, []).append(line)

    def rejected(self) -> list[dict[str, Any]]:
        lines = [line for part in self._rejected.values() for line in part]
        return [
            {
                "key": line["key"] and json.dumps(line["key"]),
                "column": line["column"],
                "text": line["text"],
                "commit_lsn": int(Lsn.parse(line["commit_lsn"])) if "commit_lsn" in line else None,
                "tx_ordinal": line.get("tx_ordinal"),
            }
            for line in lines
        ]

    def change(self, line: _Line) -> None:
        kind = line["kind"]
        if kind == "rejected":
            self.set_aside(line)
            return
        if kind == "relation":
            self._alter(line)
            return
        if self._copied:
            self._hold_all(self._all())
        if kind == "truncate":
            self._held.clear()
            return
        old = {} if kind == "insert" else self._taken(line.get("old") or line["row"])
        if kind != "delete":
            self._hold(old | self._by_attnum(line["row"]))

    def _alter(self, line: _Line) -> None:
        known = {column["attnum"] for column in self._columns}
        new = {column["attnum"]: column.get("missing") for column in line["columns"]}
        rows = [{n: row[n] if n in known else missing for n, missing in new.items()} for row in self._all()]
        self._columns, self._identity = line["columns"], line["identity"]
        self._hold_all(rows)

    def _all(self) -> list[_Row]:
        return [row for rows in (*self._copied.values(), *self._held.values()) for row in rows]

    def _hold_all(self, rows: Iterable[_Row]) -> None:
        self._copied, self._held = {}, {}
        for row in rows:
            self._hold(row)

    def _hold(self, row: _Row) -> None:
        self._held.setdefault(self._key(row), []).append(row)

    def _taken(self, told: _Line) -> _Row:
        key = self._key(self._by_attnum(told))
        rows = self._held[key]
        row = rows.pop()
        if not rows:
            del self._held[key]
        return row

    def _key(self, row: _Row) -> str:
        return json.dumps([row.get(column["attnum"]) for column in self._columns if column["name"] in self._identity])

    def _by_attnum(self, row: _Line) -> _Row:
        """What was sent of it."""
        return {column["attnum"]: row[column["name"]] for column in self._columns if column["name"] in row}


def _value(type_name: str, value: Any) -> Any:
    """As Python has it: what JSON cannot say is text in the lines."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_value(type_name.removeprefix("_"), item) for item in value]
    if type_name in ("float4", "float8"):
        return float(value)
    return bytes.fromhex(value[2:]) if type_name == "bytea" else value
