"""postgres.snapshots.Snapshot without a server: text form and the edges of 32-bit transaction ids."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.postgres.snapshots import Snapshot

EPOCH = 1 << 32


def visible(snapshot: Snapshot, *full: int) -> list[bool]:
    return snapshot.visible(np.array([xid % EPOCH for xid in full], dtype=np.uint32)).tolist()


@pytest.mark.parametrize("text", ["10:20:10,14", "10:10:", "4294967300:4294967310:4294967301"])
def test_text_round_trip(text: str) -> None:
    assert str(Snapshot.parse(text)) == text


@pytest.mark.parametrize("text", ["", "10", "10:20", "10:20:1;2", "-1:2:", "10:20:,", "10:20:10 "])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a snapshot"):
        Snapshot.parse(text)


def test_below_xmin_between_and_from_xmax_on() -> None:
    assert visible(Snapshot.parse("10:20:10,14"), 9, 10, 11, 14, 19, 20, 21) == [
        True,
        False,
        True,
        False,
        True,
        False,
        False,
    ]


def test_across_the_wraparound() -> None:
    snapshot = Snapshot(EPOCH - 2, EPOCH + 5, (EPOCH - 2, EPOCH + 3))
    xids = [EPOCH - 3, EPOCH - 2, EPOCH - 1, EPOCH + 3, EPOCH + 4, EPOCH + 5, EPOCH + 100]
    assert visible(snapshot, *xids) == [True, False, True, False, True, False, False]


def test_half_the_circle_each_way() -> None:
    snapshot = Snapshot(5 * EPOCH, 5 * EPOCH)
    assert visible(snapshot, 5 * EPOCH - (1 << 31), 5 * EPOCH + (1 << 31) - 1) == [True, False]


def test_in_the_first_epoch_a_large_xid_is_ahead_not_behind() -> None:
    assert visible(Snapshot(1000, 1000), 3_000_000_000) == [False]


def test_no_transactions_no_answers() -> None:
    assert visible(Snapshot(3, 3)) == []
