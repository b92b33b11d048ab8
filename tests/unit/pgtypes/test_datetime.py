"""date, timestamp and timestamptz."""

from __future__ import annotations

import struct
from datetime import date, datetime, timezone

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.contract import Conversion
from headrace.pgtypes.datetime import DateConversion, TimestampConversion

DATE = DateConversion()
PLAIN = TimestampConversion(zoned=False)
ZONED = TimestampConversion(zoned=True)


def _same_both_ways(conversion: Conversion, binary: pa.BinaryArray, texts: pa.StringArray) -> pa.Array:
    from_text, from_binary = conversion.from_text(texts), conversion.from_binary(binary)
    assert from_text.values.equals(from_binary.values)
    assert conversion.text_from_binary(binary).equals(texts)
    if from_text.rejected is None:
        assert from_binary.rejected is None
    else:
        assert from_binary.rejected is not None
        assert from_text.rejected.positions.equals(from_binary.rejected.positions)
        assert from_text.rejected.texts.equals(from_binary.rejected.texts)
    return from_text


def test_dates() -> None:
    numbers = [0, None, 2**31 - 1, -(2**31), -730_119, -730_120, 2_921_939, 2_921_940]
    binary = pa.array([None if number is None else struct.pack(">i", number) for number in numbers])
    texts = ["2000-01-01", None, "infinity", "-infinity", "0001-01-01", "0001-12-31 BC", "9999-12-31", "10000-01-01"]
    converted = _same_both_ways(DATE, binary, pa.array(texts))
    assert converted.values.to_pylist() == [
        date(2000, 1, 1), None, None, None, date(1, 1, 1), None, date(9999, 12, 31), None,
    ]  # fmt: skip
    assert converted.rejected.positions.to_pylist() == [2, 3, 5, 7]
    assert converted.rejected.texts.to_pylist() == ["infinity", "-infinity", "0001-12-31 BC", "10000-01-01"]


@pytest.mark.parametrize(("conversion", "zone", "tzinfo"), [(PLAIN, "", None), (ZONED, "+00", timezone.utc)])
def test_timestamps(conversion: TimestampConversion, zone: str, tzinfo: timezone | None) -> None:
    last = 252_455_615_999_999_999
    numbers = [0, None, 2**63 - 1, -(2**63), last, last + 1, -1, 9_223_371_331_199_999_999]
    binary = pa.array([None if number is None else struct.pack(">q", number) for number in numbers])
    texts = [
        f"2000-01-01 00:00:00{zone}", None, "infinity", "-infinity", f"9999-12-31 23:59:59.999999{zone}",
        f"10000-01-01 00:00:00{zone}", f"1999-12-31 23:59:59.999999{zone}", f"294276-12-31 23:59:59.999999{zone}",
    ]  # fmt: skip
    converted = _same_both_ways(conversion, binary, pa.array(texts))
    assert converted.values.type == pa.timestamp("us", "UTC" if zone else None)
    assert converted.values.to_pylist() == [
        datetime(2000, 1, 1, tzinfo=tzinfo), None, None, None, datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo),
        None, datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo), None,
    ]  # fmt: skip
    assert converted.rejected.positions.to_pylist() == [2, 3, 5, 7]


def test_nothing_rejected() -> None:
    converted = _same_both_ways(ZONED, pa.array([struct.pack(">q", 1)]), pa.array(["2000-01-01 00:00:00.000001+00"]))
    assert converted.rejected is None


@pytest.mark.parametrize("conversion", [DATE, PLAIN, ZONED])
def test_all_null(conversion: Conversion) -> None:
    values = _same_both_ways(conversion, pa.array([None], pa.binary()), pa.array([None], pa.string())).values
    assert values.to_pylist() == [None]


@pytest.mark.parametrize("text", ["today", "2024-13-01", "01/02/2024", "Infinity", "", "infinity!"])
@pytest.mark.parametrize("conversion", [DATE, PLAIN, ZONED])
def test_what_is_no_date_is_malformed(conversion: Conversion, text: str) -> None:
    with pytest.raises(ProtocolError):
        conversion.from_text(pa.array([text]))
