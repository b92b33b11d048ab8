"""pipeline.courtesy: copies wait while changes wait longer than is normal, and never for long."""

from __future__ import annotations

import threading

import pytest

from headrace.pipeline import courtesy
from headrace.pipeline.courtesy import Courtesy


class Clock:
    """Time passes only where somebody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(courtesy.time, "monotonic", lambda: self.now)

    def stopping(self, when_waiting: object = None) -> threading.Event:
        clock = self

        class Waiting(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                clock.now += timeout or 0.0
                if callable(when_waiting):
                    when_waiting()
                return self.is_set()

        return Waiting()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def waited(clock: Clock, polite: Courtesy) -> float:
    before = clock.now
    polite.give_way()
    return clock.now - before


def told(polite: Courtesy, seconds: float, *, alone: bool, times: int = 50) -> None:
    for _ in range(times):
        polite.applied(seconds, alone=alone)


def test_nobody_waits_where_nothing_is_known_or_all_is_well(clock: Clock) -> None:
    polite = Courtesy(clock.stopping())
    assert waited(clock, polite) == 0
    told(polite, 9.0, alone=False)
    assert waited(clock, polite) == 0, "what is normal was never seen"
    polite = Courtesy(clock.stopping())
    told(polite, 1.0, alone=True)
    told(polite, 1.2, alone=False)
    assert waited(clock, polite) == 0


def test_a_copy_waits_until_changes_wait_no_longer_than_they_should(clock: Clock) -> None:
    polite = Courtesy(clock.stopping(lambda: polite.applied(1.0, alone=False)))
    told(polite, 1.0, alone=True)
    told(polite, 3.0, alone=False)
    assert 0 < waited(clock, polite) < courtesy._PATIENCE_S
    assert waited(clock, polite) == 0


def test_it_does_not_wait_for_ever(clock: Clock) -> None:
    polite = Courtesy(clock.stopping(lambda: polite.applied(3.0, alone=False)))
    told(polite, 1.0, alone=True)
    told(polite, 3.0, alone=False)
    assert waited(clock, polite) == pytest.approx(courtesy._PATIENCE_S, abs=0.1)


def test_nor_for_a_stream_that_has_ended(clock: Clock) -> None:
    polite = Courtesy(clock.stopping())
    told(polite, 1.0, alone=True)
    told(polite, 3.0, alone=False)
    assert waited(clock, polite) == pytest.approx(courtesy._STALE_S, abs=0.1)


def test_nor_when_the_pipeline_stops(clock: Clock) -> None:
    stopping = clock.stopping()
    polite = Courtesy(stopping)
    told(polite, 1.0, alone=True)
    told(polite, 3.0, alone=False)
    stopping.set()
    assert waited(clock, polite) < 0.1


def test_what_is_normal_is_learned_while_nothing_is_copied(clock: Clock) -> None:
    polite = Courtesy(clock.stopping())
    told(polite, 1.0, alone=True)
    told(polite, 3.0, alone=True, times=200)
    told(polite, 3.5, alone=False)
    assert waited(clock, polite) == 0
