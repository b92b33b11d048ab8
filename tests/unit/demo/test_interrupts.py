"""Signals are noted, and raised only where somebody asks."""

from __future__ import annotations

import os
import signal

import pytest

from headrace.demo.interrupts import Interrupted, Interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_noted_and_raised_at_the_next_check(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        interrupts.check()
        os.kill(os.getpid(), number)
        assert interrupts.asked
        with pytest.raises(Interrupted):
            interrupts.check()
    assert signal.getsignal(number) is before


def test_a_wait_ends_with_the_signal() -> None:
    with Interrupts() as interrupts:
        signal.setitimer(signal.ITIMER_REAL, 0)
        before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            # Far longer than the test may take: the signal must end it.
            with pytest.raises(Interrupted):
                interrupts.pause(3600)
        finally:
            signal.signal(signal.SIGALRM, before)


def test_taken_once_it_counts_anew() -> None:
    interrupts = Interrupts()
    interrupts.ask()
    assert interrupts.take()
    assert not interrupts.take()
    interrupts.check()
