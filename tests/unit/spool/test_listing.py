"""A directory is listed while the receiver publishes into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SpoolGap
from headrace.lsn import Lsn
from headrace.spool import SegmentName, Spool
from headrace.spool.contract import Entry
from headrace.spool.listing import Listing
from headrace.spool.place import LocalPlace


class Listed(LocalPlace):
    """A place whose listings are given."""

    def __init__(self, root: Path, *listings: list[tuple[int, int]]) -> None:
        super().__init__(root)
        self.listings = list(listings)

    def entries(self) -> list[Entry]:
        found = self.listings.pop(0)
        return [Entry(str(SegmentName(Lsn(start), Lsn(end), 1, 1)), 1, 0.0) for start, end in found]


def ends(spool: Spool, after: int) -> list[int]:
    return [int(segment.end) for segment in spool.segments(Lsn(after))]


def test_a_segment_that_a_listing_overlooked_is_no_gap(tmp_path: Path) -> None:
    # Both were published while the directory was read: the second was met, the first was not.
    place = Listed(tmp_path, [(10, 20), (30, 40)], [(10, 20), (20, 30), (30, 40), (50, 60)], [(10, 20), (20, 60)])
    assert ends(Spool(place), 10) == [20, 60]


def test_what_is_missing_twice_is_missing(tmp_path: Path) -> None:
    place = Listed(tmp_path, [(10, 20), (30, 40)], [(10, 20), (30, 40)])
    with pytest.raises(SpoolGap, match="0/14 and 0/1E"):
        Spool(place).segments(Lsn(10))
    assert not place.listings


def test_what_went_is_gone_and_what_came_late_stands_where_it_belongs(tmp_path: Path) -> None:
    listings = [(10, 20), (20, 30), (40, 50)], [(20, 30), (40, 50)], [(20, 30), (30, 40), (40, 50), (50, 60)]
    listing = Listing(Listed(tmp_path, *listings))
    found = [[int(segment.end) for segment in listing.look().segments] for _ in listings]
    assert found == [[20, 30, 50], [30, 50], [30, 40, 50, 60]]


def test_what_was_seen_last_serves_as_far_as_it_reaches(tmp_path: Path) -> None:
    place = Listed(tmp_path, [(10, 20), (20, 30)], [(10, 20), (20, 30), (30, 40)])
    spool = Spool(place)
    assert ends(spool, 10) == [20, 30]
    assert [int(s.end) for s in spool.segments(Lsn(20), until=Lsn(30))] == [30]
    assert len(place.listings) == 1, "nothing had to be listed for it"
    assert [int(s.end) for s in spool.segments(Lsn(20), until=Lsn(31))] == [30, 40]
    assert not place.listings
