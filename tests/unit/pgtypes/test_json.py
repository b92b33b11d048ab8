"""jsonb's version byte."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.json import print_versioned


def test_the_version_is_taken_off() -> None:
    values = pa.array([b"\x01{}", '\x01{"é": 1}'.encode(), b"\x01"])
    assert print_versioned(values).to_pylist() == ["{}", '{"é": 1}', ""]


@pytest.mark.parametrize("value", [b"", b"{}", b"\x02{}"])
def test_another_version_is_malformed(value: bytes) -> None:
    with pytest.raises(ProtocolError, match="jsonb"):
        print_versioned(pa.array([value]))
