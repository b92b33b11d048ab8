"""Texts that Postgres never sends raise ProtocolError and nothing else."""

from __future__ import annotations

import contextlib

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

texts = st.one_of(st.text(max_size=20), st.text('{}[]",\\=>NUL19.-: x\n', max_size=20))


def _whole(converted: Converted, count: int) -> bool:
    converted.values.validate(full=True)
    return len(converted.values) == count


@pytest.mark.parametrize("name", TYPED)
def test_text(name: str) -> None:
    @settings(max_examples=40, deadline=None, database=None, derandomize=True)
    @given(st.lists(texts, min_size=1, max_size=3))
    def run(values: list[str]) -> None:
        with contextlib.suppress(ProtocolError):
            assert _whole(TYPED[name].from_text(pa.array(values, pa.string())), len(values))

    run()
