"""Columns computed by DuckDB, in this process: a batch in, arrays of as many values out, in the same order."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...errors import ConfigError
from ...schema import quote_identifier

if TYPE_CHECKING:
    import duckdb

__all__ = ["check_installed", "checked_filter", "evaluate", "hash_of", "hash_parameters", "matches_of"]

_ROWS = "headrace_rows"
_HASH_BLOCK_BYTES = 64
"""The block size of SHA-256, to which HMAC pads its key."""


def hash_of(column: str) -> str:
    """Build the expression of a column's HMAC-SHA-256, with the parameters that `hash_parameters` returns."""
    message = f"CAST(? AS VARCHAR) || chr(0) || CAST({quote_identifier(column)} AS VARCHAR)"
    return f"sha256(CAST(? AS BLOB) || unhex(sha256(CAST(? AS BLOB) || encode({message}))))"


def hash_parameters(salt: str, domain: str) -> list[str | bytes]:
    """Derive the parameters of one `hash_of`: the outer and inner key of HMAC (RFC 2104), and the domain."""
    key = salt.encode()
    key = (hashlib.sha256(key).digest() if len(key) > _HASH_BLOCK_BYTES else key).ljust(_HASH_BLOCK_BYTES, b"\0")
    return [bytes(byte ^ 0x5C for byte in key), bytes(byte ^ 0x36 for byte in key), domain]


def matches_of(condition: str) -> str:
    """The expression of a filter: true or false, never NULL."""
    # On lines of its own: a comment in it ends there.
    return f"coalesce((\n{condition}\n), false)"


def evaluate(
    batch: pa.RecordBatch, expressions: Sequence[str], parameters: Sequence[str | bytes] = ()
) -> list[pa.Array]:
    """The expressions' values for each row."""
    engine = _engine(os.getpid()).cursor()
    try:
        engine.register(_ROWS, pa.Table.from_batches([batch]))
        columns = ", ".join(f"{expression} AS c{i}" for i, expression in enumerate(expressions))
        found = engine.execute(f"SELECT {columns} FROM {_ROWS}", list(parameters)).to_arrow_table()
    finally:
        engine.close()
    return [column.combine_chunks() for column in found.columns]


def check_installed() -> None:
    """Raises ConfigError, with what to install, where there is no DuckDB."""
    _engine(os.getpid())


def checked_filter(condition: str, columns: pa.Schema, table: str) -> frozenset[str]:
    """The columns that a filter names. Raises ConfigError if it cannot be evaluated over these columns."""
    engine = _engine(os.getpid())
    import duckdb  # noqa: PLC0415 - an extra of the package

    try:
        evaluate(pa.RecordBatch.from_pylist([], schema=columns), [matches_of(condition)])
        parsed = engine.execute("SELECT json_serialize_sql(?)", [f"SELECT 1 FROM {_ROWS} WHERE {condition}"])
        (text,) = parsed.fetchone() or ("{}",)
    except duckdb.Error as error:
        msg = f"the filter of table {table} cannot be evaluated"
        hint = "write a condition over the table's columns as DuckDB's SQL has it: region = 'EU' AND total > 0"
        raise ConfigError(msg, detail=str(error).splitlines()[0], hint=hint) from None
    folded = {name.casefold(): name for name in columns.names}
    return frozenset(folded[name.casefold()] for name in _names(json.loads(text)) if name.casefold() in folded)


def _names(node: Any) -> Iterator[str]:
    """All column references of DuckDB's parse tree."""
    if isinstance(node, list):
        for part in node:
            yield from _names(part)
    elif isinstance(node, dict):
        if node.get("class") == "COLUMN_REF":
            yield from node.get("column_names", ())
        for part in node.values():
            yield from _names(part)


@lru_cache(maxsize=1)
def _engine(process: int) -> duckdb.DuckDBPyConnection:
    """One per process, not shared with those that are forked from it."""
    del process
    try:
        import duckdb  # noqa: PLC0415 - an extra of the package
    except ModuleNotFoundError:
        msg = "filters and hashes need the Python package duckdb, which is not installed"
        raise ConfigError(msg, hint="install it: pip install 'headrace[duckdb]'") from None
    engine = duckdb.connect()
    engine.execute("SET threads = 1; SET TimeZone = 'UTC'; SET enable_external_access = false")
    return engine
