"""Bytes and texts that Postgres never sends raise ProtocolError and nothing else."""

from __future__ import annotations

import contextlib
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.pgtypes.contract import Conversion, Converted
from headrace.pgtypes.oids import _TYPES, builtin_type
from headrace.pgtypes.registry import conversion_for
from headrace.schema import PgType

HSTORE = conversion_for(PgType(20_000, "hstore", "public"))
DECIMAL = conversion_for(PgType(1700, "numeric"), (10 << 16 | 2) + 4)
# Arrays differ by their elements only, which are here by themselves.
ARRAYS = ("_int4", "_text", "_numeric", "_timestamptz")
BUILTIN = {
    name: conversion_for(pg_type)
    for oid, (name, *_) in _TYPES.items()
    if (pg_type := builtin_type(oid)) and (pg_type.element is None or name in ARRAYS)
}
CONVERSIONS: dict[str, Conversion] = {**BUILTIN, "hstore": HSTORE, "numeric(10,2)": DECIMAL}
TYPED = {name: conversion for name, conversion in CONVERSIONS.items() if conversion.arrow_type != pa.string()}
BINARY = {name: conversion for name, conversion in CONVERSIONS.items() if conversion.supports_binary}

# Small integers in front of one another look like the headers and lengths of real values.
words = st.lists(st.integers(-2, 9), max_size=8).map(lambda numbers: struct.pack(f">{len(numbers)}i", *numbers))
halves = st.lists(st.integers(-2, 9), max_size=8).map(lambda numbers: struct.pack(f">{len(numbers)}h", *numbers))
binaries = st.one_of(st.binary(max_size=40), words, halves)
texts = st.one_of(st.text(max_size=20), st.text('{}[]",\\=>NUL19.-: x\n', max_size=20))


def _whole(converted: Converted, count: int) -> bool:
    converted.values.validate(full=True)
    return len(converted.values) == count


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    @settings(max_examples=40, deadline=None, database=None, derandomize=True)
    @given(st.lists(binaries, min_size=1, max_size=3))
    def run(values: list[bytes]) -> None:
        with contextlib.suppress(ProtocolError):
            assert _whole(BINARY[name].from_binary(pa.array(values, pa.binary())), len(values))

    run()


@pytest.mark.parametrize("name", TYPED)
def test_text(name: str) -> None:
    @settings(max_examples=40, deadline=None, database=None, derandomize=True)
    @given(st.lists(texts, min_size=1, max_size=3))
    def run(values: list[str]) -> None:
        with contextlib.suppress(ProtocolError):
            assert _whole(TYPED[name].from_text(pa.array(values, pa.string())), len(values))

    run()
