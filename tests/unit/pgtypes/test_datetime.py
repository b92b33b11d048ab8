"""date, timestamp and timestamptz."""

from __future__ import annotations

from datetime import UTC, date, datetime, timezone

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.contract import Conversion
from headrace.pgtypes.datetime import DateConversion, TimestampConversion

DATE = DateConversion()
PLAIN = TimestampConversion(zoned=False)
ZONED = TimestampConversion(zoned=True)


def test_dates() -> None:
    texts = ["2000-01-01", None, "infinity", "-infinity", "0001-01-01", "0001-12-31 BC", "9999-12-31", "10000-01-01"]
    converted = DATE.from_text(pa.array(texts))
    assert converted.values.to_pylist() == [
        date(2000, 1, 1), None, None, None, date(1, 1, 1), None, date(9999, 12, 31), None,
    ]  # fmt: skip
    assert converted.rejected is not None
    assert converted.rejected.positions.to_pylist() == [2, 3, 5, 7]
    assert converted.rejected.texts.to_pylist() == ["infinity", "-infinity", "0001-12-31 BC", "10000-01-01"]


@pytest.mark.parametrize(("conversion", "zone", "tzinfo"), [(PLAIN, "", None), (ZONED, "+00", UTC)])
def test_timestamps(conversion: TimestampConversion, zone: str, tzinfo: timezone | None) -> None:
    texts = [
        f"2000-01-01 00:00:00{zone}", None, "infinity", "-infinity", f"9999-12-31 23:59:59.999999{zone}",
        f"10000-01-01 00:00:00{zone}", f"1999-12-31 23:59:59.999999{zone}", f"294276-12-31 23:59:59.999999{zone}",
    ]  # fmt: skip
    converted = conversion.from_text(pa.array(texts))
    assert converted.values.type == pa.timestamp("us", "UTC" if zone else None)
    assert converted.values.to_pylist() == [
        datetime(2000, 1, 1, tzinfo=tzinfo), None, None, None, datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo),
        None, datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo), None,
    ]  # fmt: skip
    assert converted.rejected is not None
    assert converted.rejected.positions.to_pylist() == [2, 3, 5, 7]


def test_nothing_rejected() -> None:
    converted = ZONED.from_text(pa.array(["2000-01-01 00:00:00.000001+00"]))
    assert converted.rejected is None


@pytest.mark.parametrize("conversion", [DATE, PLAIN, ZONED])
def test_all_null(conversion: Conversion) -> None:
    assert conversion.from_text(pa.array([None], pa.string())).values.to_pylist() == [None]


@pytest.mark.parametrize("text", ["today", "2024-13-01", "01/02/2024", "Infinity", "", "infinity!"])
@pytest.mark.parametrize("conversion", [DATE, PLAIN, ZONED])
def test_what_is_no_date_is_malformed(conversion: Conversion, text: str) -> None:
    with pytest.raises(ProtocolError):
        conversion.from_text(pa.array([text]))
