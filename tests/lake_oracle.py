"""What an Iceberg table must hold, in each of its modes, compared with a source or a subscriber: read by pyiceberg."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from exactly_once import Oracle
from headrace.lsn import Lsn
from headrace.stores.contract import PipelineStore
from headrace.testing.canonical import canonical_text
from lakehouse import canonical_rows, lake, read_table

__all__ = ["MODES", "Lakehouse", "assert_same", "files_on_disk", "key_text", "referenced_files"]

MODES = {"public.items": "changelog", "public.fully": "changelog", "public.lines": "soft_delete"}
"""Of the tables of `mixed_load`; all others are mirrors."""
_KEYS: Mapping[str, Sequence[str]] = {
    "public.items": ("id",),
    "public.fully": ("id",),
    "public.lines": ("order", "sku", "number"),
}
_OWN = "_headrace_"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Logged:
    """A change of a log: what `exactly_once` looks at."""

    op: str
    commit_lsn: Lsn
    tx_ordinal: int
    xid: int


@dataclass(frozen=True, slots=True)
class Lakehouse:
    """The tables under a warehouse. Those without a mode of their own are mirrors."""

    warehouse: Path
    modes: Mapping[str, str]

    def assert_equal(self, wanted: Callable[[str], list[str]], *tables: str) -> None:
        """Every table holds the rows that `wanted` gives for it, canonical and sorted, as its mode says."""
        for table in tables:
            rows = self.rows(table)
            reading = {"changelog": _replayed, "soft_delete": _live}.get(self.modes.get(table, "mirror"), _as_is)
            expected, found = wanted(table), sorted(map(canonical_text, map(_sorted, reading(table, rows))))
            assert_same(table, expected, found)

    def rows(self, table: str) -> Sequence[Row]:
        return canonical_rows(read_table(self.warehouse, table))

    def change_log(self, table: str) -> list[_Logged]:
        """The changes of a log since its table was copied last, without the rows that were copied."""
        rows = [row for row in self.rows(table) if row["_headrace_op"] != "R"]
        copied = max((row["_headrace_commit_lsn"] for row in rows if row["_headrace_xid"] is None), default=0)
        rows = [row for row in rows if row["_headrace_xid"] is not None and row["_headrace_schema_version"] >= copied]
        names = ("op", "commit_lsn", "tx_ordinal", "xid")
        logged = [_Logged(*(row[_OWN + name] for name in names)) for row in rows]
        logged = [_Logged(one.op, Lsn(one.commit_lsn), one.tx_ordinal, one.xid) for one in logged]
        return sorted(logged, key=lambda one: (one.commit_lsn, one.tx_ordinal))

    def check_logs(self, oracle: Oracle, store: PipelineStore) -> int:
        """Every log has every change that the table's copy has not, once; returns how many they are."""
        logs = [table for table, mode in self.modes.items() if mode == "changelog"]
        return oracle.check(store, self, *logs)

    def flagged_keys(self, table: str) -> set[str]:
        """Keys of the rows that are deleted at the source; each has its time, and none is there twice or alive."""
        rows = self.rows(table)
        keys = [key_text(table, row) for row in rows]
        assert len(set(keys)) == len(keys), f"{table}: a key is there twice"
        assert all((row["_headrace_deleted_at"] is not None) == row["_headrace_deleted"] for row in rows)
        return {key for key, row in zip(keys, rows, strict=True) if row["_headrace_deleted"]}


def key_text(table: str, row: Row | str) -> str:
    """A row's key, of a row or of its canonical text."""
    values = json.loads(row) if isinstance(row, str) else row
    return canonical_text([values[name] for name in _KEYS[table]])


def _sorted(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in sorted(row)}


def assert_same(table: str, expected: list[str], found: list[str]) -> None:
    """The same canonical rows, sorted. What differs is told by column, of rows that are alike."""
    if expected == found:
        return
    missing, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    told = [f"missing {row[:200]}" for row in list(missing)[:2]] + [f"extra {row[:200]}" for row in list(extra)[:2]]
    for one in list(missing)[:3]:
        row = json.loads(one)
        for other in map(json.loads, extra):
            different = {name: (row[name], other.get(name)) for name in row if row[name] != other.get(name)}
            if len(different) <= len(row) / 4:
                told.append(f"{row.get('id')}: wanted and found {different}")
    counts = f"{len(expected)} rows wanted, {len(found)} found, {missing.total()} missing, {extra.total()} extra"
    raise AssertionError("\n".join([f"{table}: {counts}", *told]))


def _as_is(table: str, rows: Iterable[Row]) -> Iterable[Row]:
    del table
    return rows


def _plain(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith(_OWN)}


def _live(table: str, rows: Iterable[Row]) -> Iterable[Row]:
    del table
    return [_plain(row) for row in rows if not row["_headrace_deleted"]]


def _replayed(table: str, rows: Sequence[Row]) -> Iterable[Row]:
    """All that was copied and changed, in order: what the log says the table is now."""
    state: dict[str, dict[str, Any]] = {}
    for change in sorted(rows, key=lambda row: (row["_headrace_commit_lsn"] or 0, row["_headrace_tx_ordinal"] or 0)):
        _replay(table, state, change)
    return state.values()


def _replay(table: str, state: dict[str, dict[str, Any]], change: Row) -> None:
    op, row = change["_headrace_op"], _plain(change)
    if op == "T":
        state.clear()
        return
    before = change["_headrace_before"]
    key = key_text(table, row if before is None else before)
    if op in "RI":
        assert key not in state, f"{table}: {key} is copied or inserted ({op}), and is there"
    else:
        assert key in state, f"{table}: {key} is changed ({op}), and is not there"
    old = state.pop(key, {})
    if op != "D":
        unchanged = {name: old[name] for name in change["_headrace_unchanged"] or ()}
        state[key_text(table, row)] = {**row, **unchanged}


def files_on_disk(warehouse: Path, table: str) -> set[str]:
    """All files under the table's data directory."""
    catalog = lake(warehouse)
    try:
        data = Path(_path(catalog.load_table(table).location())) / "data"
    finally:
        catalog.close()
    return {str(file) for file in data.rglob("*") if file.is_file()}


def referenced_files(warehouse: Path, table: str) -> set[str]:
    """Data files and deletion vectors that a snapshot, of those that have not expired, has."""
    catalog = lake(warehouse)
    try:
        loaded = catalog.load_table(table)
        manifests = {file.manifest_path: file for one in loaded.snapshots() for file in one.manifests(loaded.io)}
        entries = [entry for file in manifests.values() for entry in file.fetch_manifest_entry(loaded.io)]
    finally:
        catalog.close()
    return {_path(entry.data_file.file_path) for entry in entries}


def _path(uri: str) -> str:
    return unquote(urlparse(uri).path)
