"""Arrow columns as runs of bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.pgtypes.layout import binaries, dense_apply, malformed, scan, strings, with_nulls


def test_scan_of_a_slice_starts_at_zero() -> None:
    data, offsets = scan(pa.array(["ab", "cde", "", "f"]).slice(1))
    assert data.tobytes() == b"cdef"
    assert offsets.tolist() == [0, 3, 3, 4]


@pytest.mark.parametrize("values", [pa.array([], pa.string()), pa.array(["x"]).slice(1), pa.array(["", ""])])
def test_scan_of_nothing(values: pa.StringArray) -> None:
    data, offsets = scan(values)
    assert len(data) == 0
    assert offsets.tolist() == [0] * (len(values) + 1)


def test_building_is_the_inverse_of_scanning() -> None:
    values = pa.array(["é", "", "abc"])
    assert strings(*scan(values)).equals(values)
    assert binaries(*scan(values)).equals(values.cast(pa.binary()))


def test_building_with_nulls() -> None:
    built = strings(np.frombuffer(b"ab", np.uint8), np.array([0, 1, 1, 2]), np.array([True, False, True]))
    built.validate(full=True)
    assert built.to_pylist() == ["a", None, "b"]


def test_dense_values_go_back_to_their_places() -> None:
    assert with_nulls(pa.array([1, 2]), pa.array([False, True, False, True])).to_pylist() == [None, 1, None, 2]


def test_functions_never_see_nulls() -> None:
    seen: list[int] = []

    def lengths(values: pa.StringArray) -> pa.Array:
        seen.append(values.null_count)
        return pa.array([len(value) for value in values.to_pylist()])

    assert dense_apply(lengths, pa.array(["a", None, "bc"])).to_pylist() == [1, None, 2]
    assert dense_apply(lengths, pa.array([None], pa.string())).to_pylist() == [None]
    assert seen == [0, 0]


def test_the_error_names_the_type() -> None:
    assert "bytea" in str(malformed("bytea"))
