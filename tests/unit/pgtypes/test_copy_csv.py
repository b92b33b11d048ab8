"""COPY's CSV."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.copy_csv import read_copy_csv
from headrace.pgtypes.registry import TypeOptions, builtin_type, conversion_for


def _columns(**oids: int) -> list[tuple[str, object]]:
    options = TypeOptions(numeric_without_scale=(10, 2))
    return [(name, conversion_for(builtin_type(oid), -1, options)) for name, oid in oids.items()]


def test_null_and_empty_text_stay_apart() -> None:
    rows = read_copy_csv(b'1,\n2,""\n,"NULL"\n4,NULL\n', _columns(a=23, b=25))
    assert rows.batch.to_pydict() == {"a": [1, 2, None, 4], "b": [None, "", "NULL", "NULL"]}
    assert rows.rejected == {}


def test_quotes_newlines_and_backslashes() -> None:
    rows = read_copy_csv(b'"a""b","c\r\nd"\n\\N,"\\."\n', _columns(a=25, b=25))
    assert rows.batch.to_pydict() == {"a": ['a"b', "\\N"], "b": ["c\r\nd", "\\."]}


def test_a_column_of_nulls_alone_is_rows_still() -> None:
    assert read_copy_csv(b"\n\n", _columns(a=25)).batch.to_pydict() == {"a": [None, None]}
    assert read_copy_csv(b"\nx\n\n", _columns(a=25)).batch.to_pydict() == {"a": [None, "x", None]}


@pytest.mark.parametrize("text", ["\ufeff", "\ufeffx", "x"])
def test_a_byte_order_mark_belongs_to_the_value(text: str) -> None:
    rows = read_copy_csv(f"{text},1\n{text},2\n".encode(), _columns(a=25, b=23))
    assert rows.batch.to_pydict() == {"a": [text, text], "b": [1, 2]}


def test_typed_columns() -> None:
    data = b't,1.50,2024-02-29,"2024-02-29 12:00:00.5+00",NaN,\\x00ff,"{1,NULL}"\n'
    rows = read_copy_csv(data, _columns(a=16, b=1700, c=1082, d=1184, e=701, f=17, g=1007))
    assert rows.batch.schema.types == [
        pa.bool_(), pa.decimal128(10, 2), pa.date32(), pa.timestamp("us", "UTC"), pa.float64(), pa.binary(),
        pa.list_(pa.int32()),
    ]  # fmt: skip
    assert rows.batch.column("b").to_pylist() == [Decimal("1.50")]
    assert rows.batch.column("f").to_pylist() == [b"\0\xff"]
    assert rows.batch.column("g").to_pylist() == [[1, None]]


def test_rejected_values_by_column() -> None:
    rows = read_copy_csv(b"2024-01-01,1,x\ninfinity,NaN,y\n,100000000,\n", _columns(a=1082, b=1700, c=25))
    assert rows.batch.to_pydict() == {
        "a": [date(2024, 1, 1), None, None], "b": [Decimal("1.00"), None, None], "c": ["x", "y", None],
    }  # fmt: skip
    assert {name: (r.positions.to_pylist(), r.texts.to_pylist()) for name, r in rows.rejected.items()} == {
        "a": ([1], ["infinity"]),
        "b": ([1, 2], ["NaN", "100000000"]),
    }


def test_a_decimal_that_only_overflows_is_noticed() -> None:
    rows = read_copy_csv(b"100000000\n", _columns(a=1700))
    assert rows.batch.to_pydict() == {"a": [None]}
    assert rows.rejected["a"].texts.to_pylist() == ["100000000"]


def test_no_rows() -> None:
    rows = read_copy_csv(b"", _columns(a=23, b=1184))
    assert rows.batch.num_rows == 0
    assert rows.batch.schema.types == [pa.int32(), pa.timestamp("us", "UTC")]


def test_an_arrow_buffer_will_do_and_names_may_repeat() -> None:
    columns = _columns(a=23, b=23)
    rows = read_copy_csv(pa.py_buffer(b"1,2\n"), [("a", columns[0][1]), ("a", columns[1][1])])
    assert [column.to_pylist() for column in rows.batch.columns] == [[1], [2]]


@pytest.mark.parametrize("data", [b"1\n", b"1,2,3\n", b"secret,2\n"])
def test_what_is_not_those_columns_is_malformed(data: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_copy_csv(data, _columns(a=23, b=23))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
