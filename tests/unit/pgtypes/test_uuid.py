"""uuid."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.uuid import print_uuid


def test_printing() -> None:
    values = [uuid.UUID(int=number) for number in (0, 1, 2**128 - 1, 0x0123456789ABCDEF0123456789ABCDEF)]
    assert print_uuid(pa.array([value.bytes for value in values])).to_pylist() == [str(value) for value in values]
    assert print_uuid(pa.array([], pa.binary())).to_pylist() == []


def test_another_width_is_malformed() -> None:
    with pytest.raises(ProtocolError, match="uuid"):
        print_uuid(pa.array([b"\0" * 15]))
