from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.pgtypes.python_values import python_rows, with_short_floats

SINGLE = pa.float32()
INF = float("inf")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (SINGLE, [0.1, None, -INF, 3.4028235e38, 1e-45, -0.0]),
        (pa.list_(SINGLE), [[0.1, None], [], None]),
        (
            pa.struct([("x", SINGLE), ("y", pa.list_(SINGLE)), ("z", pa.int64())]),
            [{"x": 0.1, "y": [0.3], "z": 1}, None],
        ),
        (pa.map_(pa.string(), pa.string()), [{"a": None}, None]),
        (pa.map_(pa.string(), SINGLE), [{"a": 0.1, "b": None}, None]),
        (pa.float64(), [0.1, 0.10000000149011612]),
    ],
)
def test_single_precision_is_what_postgres_prints(kind: pa.DataType, values: list[object]) -> None:
    array = pa.array([list(value.items()) if pa.types.is_map(kind) and value else value for value in values], kind)
    batch = pa.record_batch({"v": array})
    assert python_rows(batch) == [{"v": value} for value in values]
    assert python_rows(pa.Table.from_batches([batch, batch])) == [{"v": value} for value in values * 2]


def test_nothing_is_done_without_single_precision() -> None:
    array = pa.array([1.5])
    assert with_short_floats(array) is array


def test_rows_without_columns_are_rows() -> None:
    assert python_rows(pa.table({"a": [1, 2]}).select([])) == [{}, {}]
