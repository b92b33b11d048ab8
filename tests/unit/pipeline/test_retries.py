"""When a table that failed is tried again."""

from __future__ import annotations

import time

from headrace.errors import DestinationConnectionFailed, DestinationRejected, RetryPolicy
from headrace.pipeline.retries import Retries

OUTAGE, REFUSAL = DestinationConnectionFailed("gone"), DestinationRejected("no")


def test_delays_double() -> None:
    retries = Retries(delay_s=10, max_attempts=5)
    now = time.monotonic()
    for expected in (10, 20, 40):
        assert retries.failed(OUTAGE) is RetryPolicy.TIMED
        assert retries.due_at is not None
        assert expected <= retries.due_at - now < expected + 5
        assert not retries.due


def test_after_enough_failures_in_a_row_it_is_for_the_operator() -> None:
    retries = Retries(delay_s=0.001, max_attempts=2)
    assert [retries.failed(OUTAGE) for _ in range(3)] == [RetryPolicy.TIMED, RetryPolicy.TIMED, RetryPolicy.MANUAL]
    assert not retries.due


def test_a_success_starts_the_count_anew() -> None:
    retries = Retries(delay_s=10, max_attempts=1)
    retries.failed(OUTAGE)
    retries.succeeded()
    assert retries.attempts == 0
    assert retries.due
    assert retries.failed(OUTAGE) is RetryPolicy.TIMED


def test_an_error_for_the_operator_is_not_tried_again() -> None:
    retries = Retries()
    assert retries.failed(REFUSAL) is RetryPolicy.MANUAL
    assert not retries.due


def test_by_default_an_outage_is_outlasted_however_long() -> None:
    retries = Retries(delay_s=10)
    assert {retries.failed(OUTAGE) for _ in range(2000)} == {RetryPolicy.TIMED}
    assert retries.due_at is not None
    assert 0 < retries.due_at - time.monotonic() <= 120
    assert retries.failed(REFUSAL) is RetryPolicy.MANUAL
