"""Rates from counts."""

from __future__ import annotations

from headrace.cli.rates import RateMeter
from headrace.lsn import Lsn
from headrace.pipeline.copy_progress import CopyView
from headrace.pipeline.status import PipelineState, PipelineStatus, TableStatus
from headrace.table_state import State, TableState


def status(changes: int = 0, rows: int = 0, name: str = "t") -> PipelineStatus:
    table = TableStatus(name, TableState(State.READY), Lsn(1), CopyView(rows=rows), 0, changes)
    return PipelineStatus(PipelineState.RUNNING, {name: table})


def test_one_look_is_no_rate() -> None:
    assert RateMeter().observe(1.0, status(5)).changes == {}


def test_a_rate_is_the_mean_of_the_window() -> None:
    meter = RateMeter(window_s=5.0)
    for second in range(20):
        rates = meter.observe(float(second), status(changes=second * 10 if second < 10 else 100, rows=second))
    assert rates.changes == {}
    assert rates.rows == {"t": 1.0}
    assert rates.of("t") == 1.0
    assert rates.of("other") == 0.0


def test_a_copy_that_starts_over_and_a_new_table_have_none_yet() -> None:
    meter = RateMeter()
    meter.observe(0.0, status(rows=100))
    assert meter.observe(1.0, status(rows=3)).rows == {}
    assert meter.observe(2.0, status(name="new", changes=7)).changes == {}


def test_what_lies_before_the_window_is_forgotten() -> None:
    meter = RateMeter(window_s=2.0)
    for now in (0.0, 1.0, 2.0, 3.0):
        meter.observe(now, status(changes=0))
    meter.observe(4.0, status(changes=10))
    assert meter.observe(4.5, status(changes=10)).changes == {"t": 10 / 2.5}
