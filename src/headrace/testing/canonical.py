"""One text for one value, whichever side it was read from: how tests compare a source with a destination."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa

from ..pgtypes.python_values import with_short_floats

__all__ = ["Canonical", "canonical", "canonical_column", "canonical_text", "canonical_texts", "object_text"]

Canonical = None | bool | int | str | list[Any] | dict[str, Any]

_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))


def canonical(value: object) -> Canonical:
    """A value of JSON that is equal for equal values, and only for them. Rows (mappings) and arrays go by their items.

    Decimals, floats, dates, times and whatever else JSON has no word for become text; bytes become hexadecimal.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): canonical(value[name]) for name in sorted(value)}
    return [canonical(item) for item in value] if isinstance(value, list | tuple) else str(value)


def canonical_text(value: Canonical) -> str:
    """The JSON text of what `canonical` gave."""
    return _ENCODER.encode(value)


def canonical_column(column: pa.Array) -> list[Canonical]:
    """The values of a column. One of single precision is the shortest text that Postgres reads as it."""
    return [canonical(value) for value in with_short_floats(column).to_pylist(maps_as_pydicts="strict")]


def canonical_texts(columns: Sequence[pa.Array]) -> Iterator[tuple[str, ...]]:
    """Rows of the JSON texts of their values: what `canonical_text` gives, sooner."""
    return zip(*map(_texts, columns), strict=True)


def object_text(names: Iterable[str], texts: Iterable[str]) -> str:
    """A JSON object of values that are texts already."""
    return "{" + ",".join([f"{_quoted(name)}:{text}" for name, text in zip(names, texts, strict=True)]) + "}"


def _texts(column: pa.Array) -> list[str]:
    kind = column.type
    if pa.types.is_integer(kind):
        return ["null" if value is None else str(value) for value in column.to_pylist()]
    if pa.types.is_string(kind):
        return ["null" if value is None else encode_basestring(value) for value in column.to_pylist()]
    if pa.types.is_timestamp(kind):
        # By way of numpy, which makes datetimes several times faster.
        zone = "+00:00" if kind.tz else ""
        values = column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()
        return ["null" if value is None else f'"{value.isoformat()}{zone}"' for value in values]
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind):
        return [canonical_text(value) for value in canonical_column(column)]
    # All others are texts of letters, digits and signs: nothing in them needs an escape.
    return ["null" if value is None else f'"{value}"' for value in canonical_column(column)]


@lru_cache(1_000)
def _quoted(name: str) -> str:
    return encode_basestring(name)
