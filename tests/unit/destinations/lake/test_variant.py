"""lake.variant: JSON texts in the binary form, with Spark's decoder (pure Python) as the oracle."""

from __future__ import annotations

import decimal
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal
from pyspark.sql.variant_utils import VariantUtils

from headrace.destinations.lake.variant import SIZE_LIMIT, VARIANT, filled, variant_array

# Variants have numbers of their own; a text's are compared as decimals, which no reader rounds.
_exact = json.JSONDecoder(parse_int=decimal.Decimal, parse_float=decimal.Decimal).decode


def shown(variant: dict[str, bytes]) -> str:
    # The oracle computes decimals in the context that is in force.
    with decimal.localcontext(decimal.Context(prec=76)):
        return VariantVal(variant["value"], variant["metadata"]).toJson()


def decoded(variant: dict[str, bytes]) -> Any:
    return _exact(shown(variant))


def encoded(text: str) -> dict[str, bytes]:
    variant = variant_array(pa.array([text])).to_pylist()[0]
    assert variant is not None
    return variant  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "text",
    [
        "null", "true", "false", '""', '"é日本語🚰"', '"\\ud83d\\udeb0\\u0000\\n"', "{}", "[]", "[[],[{}],[null]]",
        '{"b": 1, "a": {"b": [1, {"b": null}]}, "": ""}', ' { "spaced" : [ 1 , 2 ] } ', '{"é": 1, "z": 2, "🚰": 3}',
        *(f'"{"x" * length}"' for length in (63, 64, 255, 256, 70_000)),
        *(str(sign * (1 << bits) + step) for bits in (7, 15, 31, 63) for sign in (1, -1) for step in (-1, 0, 1)),
        "12345678901234567890123456789012345678", "-99999999999999999999999999999999999999",
        "0.05", "-0.5", "2.50", "123456789.123456789", "0.00000000000000000000000000000000000001", "-1.5e300", "1E2",
        json.dumps(list(range(255))), json.dumps(list(range(256))), json.dumps([1] * 66_000),
        json.dumps({f"k{number}": number for number in range(255)}),
        json.dumps({f"k{number}": {"same": number} for number in range(300)}),
        json.dumps({f"{number}": 1 for number in range(66_000)}),
    ],
)  # fmt: skip
def test_what_is_encoded_is_what_was_said(text: str) -> None:
    assert decoded(encoded(text)) == _exact(text)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**38) + 1, 10**38 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(st.lists(values, max_size=5), st.booleans())
def test_any_json(documents: list[Any], ascii_only: bool) -> None:
    texts = [json.dumps(document, ensure_ascii=ascii_only) for document in documents]
    variants = variant_array(pa.array(texts, pa.string()))
    variants.validate(full=True)
    for document, variant in zip(documents, variants.to_pylist(), strict=True):
        assert json.loads(shown(variant)) == document


@pytest.mark.parametrize("text", ['{"b":[1,2.5,"x"],"a":null}', "-129", "1.25", '"short"', "[[1],[300,70000]]"])
def test_the_bytes_are_those_of_spark(text: str) -> None:
    # One key, or keys in order: else the same object may have its values and ids in another order.
    if text.startswith("{"):
        text = json.dumps(json.loads(text), sort_keys=True)
    value, metadata = VariantUtils.parse_json(text)
    assert encoded(text) == {"metadata": metadata, "value": value}


def test_keys_are_found_among_many() -> None:
    # A reader searches by halves, so the order of an object's keys counts: that of their UTF-8.
    names = [f"{letter}{number}" for letter in "zé日🚰a" for number in range(20)]
    variant = encoded(json.dumps({name: name for name in names}))
    fields = VariantVal(variant["value"], variant["metadata"]).toPython()
    assert list(fields) == sorted(names, key=str.encode)
    assert all(fields[name] == name for name in names)


def test_null_texts_repeated_texts_and_types_of_text() -> None:
    texts = ["1", None, "null", "1", '{"a":1}', None]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        variants = variant_array(pa.array(texts, kind))
        assert variants.type.equals(VARIANT)
        assert variants.is_null().to_pylist() == [False, True, False, False, False, True]
        assert [None if variant is None else decoded(variant) for variant in variants.to_pylist()] == [
            1, None, None, 1, {"a": 1}, None,
        ]  # fmt: skip
    assert len(variant_array(pa.array([], pa.string()))) == 0
    assert variant_array(pa.array(["1", "2", None], pa.string())[1:]).is_null().to_pylist() == [False, True]


def test_nulls_can_be_written_as_parquet() -> None:
    variants = variant_array(pa.array(["1", None, '{"a": 1}']))
    for made in (variants, filled(pa.nulls(2, VARIANT)), filled(variants.take(pa.array([None, 0]))), variants[1:]):
        rows = pa.table({"v": made}, schema=pa.schema([("v", VARIANT)]))
        stream = pa.BufferOutputStream()
        pq.write_table(rows, stream)
        assert pq.read_table(pa.BufferReader(stream.getvalue())).equals(rows)
    assert filled(variants[1:]).to_pylist() == variants.to_pylist()[1:]


def test_of_a_key_given_twice_the_last_counts() -> None:
    assert decoded(encoded('{"a": 1, "b": 2, "a": [3]}')) == {"a": [3], "b": 2}


def test_numbers_of_more_digits_become_doubles() -> None:
    assert decoded(encoded("1" + "0" * 40)) == decimal.Decimal("1e40")
    assert decoded(encoded("0." + "0" * 50 + "1")) == decimal.Decimal("1e-51")
    assert decoded(encoded("1" * 5000 + "e-4999")) == decimal.Decimal("1.1111111111111112")


@pytest.mark.parametrize(
    "text",
    ["1e400", "9" * 5000, '"\\ud800"', '{"\\udc00": 1}', "[" * 100_000 + "]" * 100_000, "{", "NaN", '[1, -Infinity]',
     f'"{"x" * SIZE_LIMIT}"', f'{{"{"x" * SIZE_LIMIT}": 1}}'],
    ids=["too large", "too many digits", "half a pair", "half a pair in a key", "too deep", "no JSON", "NaN",
         "infinite", "a long text", "a long key"],
)  # fmt: skip
def test_what_no_variant_holds_becomes_null_alone(text: str) -> None:
    variants = variant_array(pa.array(["[1]", text, '{"a": 2}']))
    assert variants.is_null().to_pylist() == [False, True, False]
    assert [decoded(variants[position].as_py()) for position in (0, 2)] == [[1], {"a": 2}]
