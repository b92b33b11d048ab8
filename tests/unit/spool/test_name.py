from __future__ import annotations

import pytest

from headrace.lsn import Lsn
from headrace.spool.name import IdleMark, SegmentName, parse_name


@pytest.mark.parametrize(
    "name", [SegmentName(Lsn(1), Lsn(2**40), 3, 12), SegmentName(Lsn(0), Lsn(2**64 - 1)), IdleMark(Lsn(5), Lsn(9))]
)
def test_a_name_reads_back(name: SegmentName | IdleMark) -> None:
    assert parse_name(str(name)) == name


@pytest.mark.parametrize(
    "text", ["", "owner.json", "x.arrow", "1-2.1-1.arrow", str(SegmentName(Lsn(1), Lsn(2))) + ".tmp"]
)
def test_other_files_are_not_ours(text: str) -> None:
    assert parse_name(text) is None


def test_names_sort_as_positions_do() -> None:
    names = [SegmentName(Lsn(n), Lsn(n + 1)) for n in (1, 15, 16, 255, 2**32, 2**63)]
    assert sorted(map(str, reversed(names))) == [str(name) for name in names]
