"""time, timetz and interval."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.time import print_interval, print_time, print_timetz

SECOND, HOUR = 1_000_000, 3_600_000_000


@pytest.mark.parametrize(("time", "text"), [(0, "00:00:00"), (24 * HOUR, "24:00:00"), (HOUR + 1, "01:00:00.000001")])
def test_time(time: int, text: str) -> None:
    assert print_time(pa.array([struct.pack(">q", time)])).to_pylist() == [text]


@pytest.mark.parametrize(
    ("west", "zone"),
    [(0, "+00"), (-3600, "+01"), (3600, "-01"), (-19_800, "+05:30"), (57_599, "-15:59:59"), (-17, "+00:00:17")],
)
def test_timetz(west: int, zone: str) -> None:
    assert print_timetz(pa.array([struct.pack(">qi", HOUR, west)])).to_pylist() == ["01:00:00" + zone]


@pytest.mark.parametrize(
    ("months", "days", "time", "text"),
    [
        (0, 0, 0, "00:00:00"),
        (1, 0, 0, "1 mon"),
        (12, 1, 0, "1 year 1 day"),
        (14, 2, 1, "1 year 2 mons 2 days 00:00:00.000001"),
        (-14, 0, 0, "-1 years -2 mons"),
        (-1, 1, 0, "-1 mons +1 day"),
        (1, -1, 0, "1 mon -1 days"),
        (0, -1, SECOND, "-1 days +00:00:01"),
        (0, 1, -SECOND, "1 day -00:00:01"),
        (0, 0, -500_000, "-00:00:00.5"),
        (-1, 0, SECOND, "-1 mons +00:00:01"),
        (0, 0, 100_000 * HOUR, "100000:00:00"),
        (2**31 - 1, 2**31 - 1, 2**63 - 1, "infinity"),
        (-(2**31), -(2**31), -(2**63), "-infinity"),
    ],
)
def test_interval(months: int, days: int, time: int, text: str) -> None:
    assert print_interval(pa.array([struct.pack(">qii", time, days, months)])).to_pylist() == [text]


@pytest.mark.parametrize("printer", [print_time, print_timetz, print_interval])
def test_another_width_is_malformed(printer: object) -> None:
    with pytest.raises(ProtocolError):
        printer(pa.array([b"\0" * 7]))  # type: ignore[operator]
