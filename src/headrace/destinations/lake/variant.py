"""JSON text as Iceberg's VARIANT: the binary form that Parquet's VariantEncoding.md describes, unshredded.

Numbers are kept as Spark's `parse_json` keeps them: whole ones as the smallest of int8 to int64, those written without
an exponent as decimals of up to 38 digits, all others as doubles. Of a key that a `json` value has twice the last value
counts, as in jsonb. The order of keys, the spelling of numbers and white space are lost.

No library encodes a column of texts at a time, so this is the one place where values are handled one by one, and only
where `json_as: variant` asks for it; each distinct text is encoded once.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from math import isinf
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["SIZE_LIMIT", "VARIANT", "filled", "variant_array"]

VARIANT = pa.struct([pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
"""A variant in Arrow and, as a group of these two, in Parquet."""

SIZE_LIMIT = 1 << 24
"""Bytes that a value, or its keys, may have: Spark reads none that are larger."""

_EMPTY_KEYS = b"\x01\x00\x00"
_NULL, _TRUE, _FALSE, _DOUBLE, _LONG_STRING = b"\x00", b"\x04", b"\x08", b"\x1c", b"\x40"
_SHORT_STRING_BYTES = 64
_SHORT_STRINGS = [bytes([length << 2 | 1]) for length in range(_SHORT_STRING_BYTES)]
_SMALL_INTEGERS = {number: b"\x0c" + struct.pack("<b", number) for number in range(-128, 128)}
_INTEGERS = ((1 << 15, 2, b"\x10"), (1 << 31, 4, b"\x14"), (1 << 63, 8, b"\x18"))
"""By size: one more than the largest, bytes, header."""
_DECIMALS = ((9, 4, b"\x20"), (18, 8, b"\x24"), (38, 16, b"\x28"))
"""By size: digits, bytes, header."""
_DIGITS = 38
_KNOWN_KEYS = 1000
"""Sets of keys whose bytes are kept. The documents of a column mostly share a few; others must not fill the memory."""


def variant_array(texts: pa.Array) -> pa.StructArray:
    """The variants of JSON texts, of type `VARIANT`. JSON's null is a variant; only a NULL text gives NULL.

    A text that no variant can hold also gives NULL: one larger than `SIZE_LIMIT`, a number beyond a double's range, an
    escaped half of a surrogate pair, hundreds of levels of nesting. So `texts.is_valid()` where the result is null
    tells which were rejected.
    """
    encoded = texts.cast(pa.large_string()).dictionary_encode()
    encode = _Encoder().encode
    distinct = [encode(text) for text in encoded.dictionary.to_pylist()]
    rejected = pa.array([variant is None for variant in distinct], pa.bool_())
    metadata = pa.array([variant[0] if variant else b"" for variant in distinct], pa.binary())
    value = pa.array([variant[1] if variant else b"" for variant in distinct], pa.binary())
    variants = pa.StructArray.from_arrays([metadata, value], fields=list(VARIANT), mask=rejected)
    return filled(pc.take(variants, encoded.indices))


def filled(variants: pa.StructArray) -> pa.StructArray:
    """The same variants with something in both parts of a NULL, which pyarrow demands to write required parts.

    What makes NULLs (`pa.nulls`, taking by an index that is NULL) leaves the parts NULL too.
    """
    parts = [pc.fill_null(variants.field(position), b"") for position in range(VARIANT.num_fields)]
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=variants.is_null())


class _Encoder:
    """Encodes while the text is parsed: the parser's hooks turn numbers and objects into their bytes as they end."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._known_keys: dict[tuple[str, ...], bytes] = {}
        self._parse = json.JSONDecoder(
            object_pairs_hook=self._object, parse_int=_integer, parse_float=_real, parse_constant=_no_number
        ).decode

    def encode(self, text: str) -> tuple[bytes, bytes] | None:
        """Metadata and value; None if there is no such variant."""
        # Objects are finished from the inside out, so the ids of the keys grow while the text is read.
        self._ids.clear()
        try:
            value = _bytes_of(self._parse(text))
            metadata = self._metadata() if self._ids else _EMPTY_KEYS
        except (ValueError, RecursionError):
            return None
        return (metadata, value) if len(value) <= SIZE_LIMIT and len(metadata) <= SIZE_LIMIT else None

    def _metadata(self) -> bytes:
        names = tuple(self._ids)
        known = self._known_keys.get(names)
        if known is None:
            known = _keys([name.encode() for name in names])
            if len(self._known_keys) < _KNOWN_KEYS:
                self._known_keys[names] = known
        return known

    def _object(self, pairs: list[tuple[str, Any]]) -> bytes:
        fields = dict(pairs)
        names = sorted(fields)
        known = self._ids
        ids = [known.setdefault(name, len(known)) for name in names]
        values = [_bytes_of(fields[name]) for name in names]
        offsets, size = _offsets(values)
        count, highest = len(ids), max(ids, default=0)
        if count < 256 and size < 256 and highest < 256:
            return bytes((2, count, *ids, *offsets)) + b"".join(values)
        large, id_bytes, offset_bytes = count > 255, _width(highest), _width(size)
        header = 2 | (offset_bytes - 1) << 2 | (id_bytes - 1) << 4 | large << 6
        return b"".join(
            (bytes([header]), _count(count), _packed(ids, id_bytes), _packed(offsets, offset_bytes), *values)
        )


def _bytes_of(value: Any) -> bytes:
    kind = type(value)
    if kind is bytes:
        return value  # type: ignore[no-any-return]
    if kind is str:
        text: bytes = value.encode()
        length = len(text)
        return (
            _SHORT_STRINGS[length] + text
            if length < _SHORT_STRING_BYTES
            else _LONG_STRING + length.to_bytes(4, "little") + text
        )
    if kind is list:
        return _list([_bytes_of(item) for item in value])
    return _NULL if value is None else _TRUE if value else _FALSE


def _list(values: list[bytes]) -> bytes:
    offsets, size = _offsets(values)
    count = len(values)
    if count < 256 and size < 256:
        return bytes((3, count, *offsets)) + b"".join(values)
    width = _width(size)
    header = 3 | (width - 1) << 2 | (count > 255) << 4
    return b"".join((bytes([header]), _count(count), _packed(offsets, width), *values))


def _integer(text: str) -> bytes:
    if len(text) > _DIGITS + 1:
        return _double(text)
    number = int(text)
    small = _SMALL_INTEGERS.get(number)
    if small is not None:
        return small
    for limit, size, header in _INTEGERS:
        if -limit <= number < limit:
            return header + number.to_bytes(size, "little", signed=True)
    return _decimal(number, 0) or _double(text)


def _real(text: str) -> bytes:
    if "e" in text or "E" in text:
        return _double(text)
    whole, _, fraction = text.partition(".")
    if len(fraction) > _DIGITS or len(whole) > _DIGITS + 1:
        return _double(text)
    return _decimal(int(whole + fraction), len(fraction)) or _double(text)


def _decimal(unscaled: int, scale: int) -> bytes | None:
    for digits, size, header in _DECIMALS:
        if scale <= digits and abs(unscaled) < 10**digits:
            return header + bytes([scale]) + unscaled.to_bytes(size, "little", signed=True)
    return None


def _double(text: str) -> bytes:
    number = float(text)
    return _no_number(text) if isinf(number) else _DOUBLE + struct.pack("<d", number)


def _no_number(_: str) -> NoReturn:
    msg = "a number that no variant holds"
    raise ValueError(msg)


def _keys(names: Sequence[bytes]) -> bytes:
    offsets, size = _offsets(names)
    width = _width(max(size, len(names)))
    # Version 1; bit 4, for sorted keys, stays unset.
    return b"".join(
        (bytes([1 | (width - 1) << 6]), len(names).to_bytes(width, "little"), _packed(offsets, width), *names)
    )


def _offsets(parts: Sequence[bytes]) -> tuple[list[int], int]:
    """Where each part begins and, last, where all end; and that end."""
    end, offsets = 0, [0]
    for part in parts:
        end += len(part)
        offsets.append(end)
    return offsets, end


def _width(highest: int) -> int:
    return max(1, (highest.bit_length() + 7) // 8)


def _count(count: int) -> bytes:
    return bytes([count]) if count < 256 else count.to_bytes(4, "little")


def _packed(numbers: Sequence[int], width: int) -> bytes:
    return b"".join([number.to_bytes(width, "little") for number in numbers])
