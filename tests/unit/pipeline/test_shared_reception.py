"""What several lanes tell the one receiver: the least of them."""

from __future__ import annotations

import threading
from typing import Any

from headrace.lsn import INVALID_LSN, Lsn
from headrace.pipeline.shared_reception import Holds, SharedReception


class Receiver:
    """Takes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Lsn, Lsn]] = []
        self.fatal = None
        self.waits = 0

    def apply(self, applied: Lsn, hold: Lsn) -> None:
        self.told.append((applied, hold))

    def wait(self, _until: Any, _timeout: float) -> bool:
        self.waits += 1
        return True


def test_one_lane_is_told_as_it_says() -> None:
    holds = Holds([""])
    assert holds.least() == (INVALID_LSN, INVALID_LSN)
    holds.say("", Lsn(10), Lsn(7))
    assert holds.least() == (Lsn(10), Lsn(7))
    holds.say("", INVALID_LSN, Lsn(3))
    assert holds.least() == (Lsn(10), Lsn(3)), "who only tells what it needs has applied no less than before"
    assert holds.is_last("")


def test_the_least_of_all_counts() -> None:
    holds = Holds(["a", "b"])
    holds.say("a", Lsn(10), Lsn(9))
    assert holds.least() == (INVALID_LSN, INVALID_LSN), "one that has said nothing needs everything"
    assert (holds.is_last("a"), holds.is_last("b")) == (False, True)
    holds.say("b", Lsn(20), Lsn(5))
    assert holds.least() == (Lsn(10), Lsn(5))
    assert (holds.is_last("a"), holds.is_last("b")) == (False, True)
    holds.say("b", Lsn(20), Lsn(20))
    assert holds.least() == (Lsn(10), Lsn(9))
    assert (holds.is_last("a"), holds.is_last("b")) == (True, False)


def test_one_that_is_let_go_needs_nothing_until_it_is_taken_up() -> None:
    holds = Holds(["a", "b"])
    holds.say("a", Lsn(10), Lsn(10))
    holds.let_go("b")
    assert holds.least() == (Lsn(10), Lsn(10))
    assert not holds.is_last("b")
    holds.say("b", Lsn(3), Lsn(3))
    assert holds.least() == (Lsn(10), Lsn(10)), "a word that comes late changes nothing"
    holds.take_up("b")
    assert holds.least() == (INVALID_LSN, INVALID_LSN)
    holds.let_go("a")
    holds.let_go("b")
    assert holds.least() is None


def test_the_receiver_is_told_at_every_word() -> None:
    receiver: Any = Receiver()
    shared = SharedReception(receiver, ["a", "b"])
    a, b = (shared.of(name, threading.Event()) for name in "ab")
    a.apply(Lsn(10), Lsn(10))
    b.apply(Lsn(4), Lsn(2))
    shared.let_go("b")
    shared.take_up("b")
    assert receiver.told == [(Lsn(0), Lsn(0)), (Lsn(4), Lsn(2)), (Lsn(10), Lsn(10)), (Lsn(0), Lsn(0))]
    assert (a.is_last, b.is_last) == (False, True)


def test_a_lane_that_stops_waits_no_more() -> None:
    receiver: Any = Receiver()
    stopping = threading.Event()
    lane = SharedReception(receiver, ["a"]).of("a", stopping)
    assert lane.wait(lambda _: True, 1.0)
    stopping.set()
    assert not lane.wait(lambda _: True, 1.0)
    assert receiver.waits == 1
