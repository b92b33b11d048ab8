"""Which conversion a column has."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from headrace.pgtypes.oids import _TYPES
from headrace.pgtypes.registry import TypeOptions, builtin_type, conversion_for
from headrace.schema import PgType

US = pa.timestamp("us")
UTC = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("oid", "arrow_type"),
    [
        (16, pa.bool_()), (21, pa.int16()), (23, pa.int32()), (20, pa.int64()), (26, pa.int64()), (700, pa.float32()),
        (701, pa.float64()), (17, pa.binary()), (25, pa.string()), (1043, pa.string()), (1082, pa.date32()), (1114, US),
        (1184, UTC), (2950, pa.string()), (114, pa.string()), (3802, pa.string()), (1083, pa.string()),
        (1186, pa.string()),
        (28, pa.string()), (2205, pa.string()), (790, pa.string()), (22, pa.string()), (600, pa.string()),
        (1007, pa.list_(pa.int32())), (1185, pa.list_(UTC)), (1020, pa.list_(pa.string())), (3904, pa.string()),
    ],
)  # fmt: skip
def test_built_in_types(oid: int, arrow_type: pa.DataType) -> None:
    pg_type = builtin_type(oid)
    assert pg_type is not None
    assert conversion_for(pg_type).arrow_type == arrow_type


NUMERIC = PgType(1700, "numeric")
NUMERICS = PgType(1231, "_numeric", element=NUMERIC)
TYPMOD_10_2 = (10 << 16 | 2) + 4


def test_numeric_follows_its_typmod_also_in_an_array() -> None:
    assert conversion_for(NUMERIC).arrow_type == pa.string()
    assert conversion_for(NUMERIC, TYPMOD_10_2).arrow_type == pa.decimal128(10, 2)
    assert conversion_for(NUMERICS, TYPMOD_10_2).arrow_type == pa.list_(pa.decimal128(10, 2))


def test_numeric_without_scale_may_be_configured() -> None:
    options = TypeOptions(numeric_without_scale=(38, 9))
    assert conversion_for(NUMERIC, -1, options).arrow_type == pa.decimal128(38, 9)
    assert conversion_for(NUMERICS, -1, options).arrow_type == pa.list_(pa.decimal128(38, 9))
    assert conversion_for(NUMERIC, TYPMOD_10_2, options).arrow_type == pa.decimal128(10, 2)


def test_a_domain_is_its_base_type_with_the_domains_typmod() -> None:
    price = PgType(20_000, "price", "public", "d", base=NUMERIC, base_typmod=TYPMOD_10_2)
    sale = PgType(20_001, "sale_price", "public", "d", base=price)
    assert conversion_for(price).arrow_type == pa.decimal128(10, 2)
    assert conversion_for(sale).arrow_type == pa.decimal128(10, 2)
    assert conversion_for(PgType(20_002, "_price", "public", element=price)).arrow_type == pa.list_(
        pa.decimal128(10, 2)
    )


def test_types_of_users() -> None:
    mood = PgType(20_003, "mood", "public", "e")
    pair = PgType(20_004, "pair", "public", "c")
    assert conversion_for(mood).arrow_type == pa.string()
    assert conversion_for(pair).arrow_type == pa.string()
    assert conversion_for(PgType(20_006, "_mood", "public", element=mood)).arrow_type == pa.list_(pa.string())


def test_types_of_extensions_are_known_by_name() -> None:
    hstore = PgType(20_007, "hstore", "extensions")
    assert conversion_for(hstore).arrow_type == pa.map_(pa.string(), pa.string())
    assert conversion_for(PgType(20_009, "geometry", "public")).arrow_type == pa.string()
    # A composite type that happens to have the name is another thing.
    assert conversion_for(PgType(20_010, "hstore", "public", "c")).arrow_type == pa.string()


def test_a_type_of_a_user_named_like_a_built_in_one_is_another_type() -> None:
    assert conversion_for(PgType(20_011, "int4", "public", "c")).arrow_type == pa.string()


def test_every_built_in_type_has_a_conversion_that_travels() -> None:
    conversions = [conversion_for(pg_type) for pg_type in map(builtin_type, _TYPES) if pg_type is not None]
    assert len(conversions) == len(_TYPES) > 150
    assert pickle.loads(pickle.dumps(conversions)) == conversions
    for conversion in conversions:
        empty = conversion.from_text(pa.array([None, None], pa.string()))
        assert empty.values.type == conversion.arrow_type
        assert empty.values.null_count == 2
