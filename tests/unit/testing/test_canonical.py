from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from headrace.testing.canonical import canonical, canonical_column, canonical_text, canonical_texts, object_text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**62, 2**62),
        ("", ""),
        (1.0, "1.0"),
        (float("nan"), "nan"),
        (-0.0, "-0.0"),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+2"), "100"),
        (b"\x00\xff", "00ff"),
        (memoryview(b"\x01"), "01"),
        (date(2024, 2, 29), "2024-02-29"),
        (time(1, 2, 3), "01:02:03"),
        (datetime(2024, 1, 1, 1), "2024-01-01T01:00:00"),  # noqa: DTZ001
        (datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2023-12-31T23:00:00+00:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([1.5, None, [b"a"]], ["1.5", None, ["61"]]),
        ({"b": 1, "a": Decimal("2.0")}, {"a": "2.0", "b": 1}),
    ],
)
def test_values(value: object, expected: object) -> None:
    assert canonical(value) == expected
    assert canonical(canonical(value)) == expected


def test_maps_are_equal_whatever_their_order() -> None:
    assert canonical_text(canonical({"b": 1, "a": "ä"})) == '{"a":"ä","b":1}'


def test_columns() -> None:
    columns = [
        pa.array([1, None]),
        pa.array([0.1, float("nan")], pa.float32()),
        pa.array([[0.1], None], pa.list_(pa.float32())),
        pa.array([0.1, 1e300]),
        pa.array([[("b", "1"), ("a", None)], None], pa.map_(pa.string(), pa.string())),
        pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        pa.array([datetime(1969, 12, 31, 23, 59, 59, 999_999), None], pa.timestamp("us")),  # noqa: DTZ001
        pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
    ]
    values = [canonical_column(column) for column in columns]
    assert list(zip(*values, strict=True)) == [
        (
            1,
            "0.1",
            ["0.1"],
            "0.1",
            {"a": None, "b": "1"},
            "1.50",
            "1969-12-31T23:59:59.999999",
            "2024-01-01T00:00:00+00:00",
        ),
        (None, "nan", None, "1e+300", None, None, None, None),
    ]
    assert list(canonical_texts(columns)) == [tuple(map(canonical_text, row)) for row in zip(*values, strict=True)]


def test_texts_of_columns_are_json() -> None:
    texts = list(
        canonical_texts(
            [
                pa.array(['a"\\\n', None]),
                pa.array([True, None]),
                pa.array([date(2024, 2, 29), None]),
                pa.array([b"\xff", None]),
                pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            ]
        )
    )
    assert [[json.loads(text) for text in row] for row in texts] == [
        ['a"\\\n', True, "2024-02-29", "ff", "2024-01-01T00:00:00+00:00"],
        [None] * 5,
    ]
    assert json.loads(object_text(['a"', "b"], texts[0][:2])) == {'a"': 'a"\\\n', "b": True}
