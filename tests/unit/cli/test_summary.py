"""The summary line where there is no terminal: when it comes, and what it says."""

from __future__ import annotations

from structlog.testing import capture_logs

from headrace.cli.rates import Rates
from headrace.cli.summary import Summary
from headrace.lsn import Lsn
from headrace.pipeline.copy_progress import CopyView
from headrace.pipeline.status import PipelineState, PipelineStatus, TableStatus
from headrace.table_state import State, TableState


def status(state: State, changes: int = 0, rows: int = 0) -> PipelineStatus:
    table = TableStatus("t", TableState(state), Lsn(1), CopyView(rows=rows), 0, changes)
    return PipelineStatus(PipelineState.RUNNING, {"t": table}, applied=Lsn(0x20))


def logged_at(*seen: tuple[float, PipelineStatus]) -> list[float]:
    summary, times = Summary(), []
    for now, one in seen:
        with capture_logs() as logs:
            summary.observe(now, one, Rates())
        times += [now] * len(logs)
    return times


def test_every_ten_seconds_while_copying() -> None:
    assert logged_at(*((float(now), status(State.DATA_SYNC)) for now in range(31))) == [10.0, 20.0, 30.0]


def test_every_minute_while_changes_come_in() -> None:
    assert logged_at(*((float(now), status(State.READY, changes=now)) for now in range(150))) == [10.0, 70.0, 130.0]


def test_never_while_nothing_happens() -> None:
    assert logged_at(*((float(now), status(State.READY)) for now in range(500))) == [10.0]


def test_when_a_table_changes_state() -> None:
    before = [(float(now), status(State.READY)) for now in range(30)]
    assert logged_at(*before, (30.0, status(State.INIT)), (31.0, status(State.INIT))) == [10.0, 30.0]


def test_a_pipeline_without_tables_yet_says_nothing() -> None:
    assert (
        logged_at((0.0, PipelineStatus(PipelineState.STARTING)), (99.0, PipelineStatus(PipelineState.STARTING))) == []
    )


def test_it_says_how_far_everything_is() -> None:
    summary = Summary()
    with capture_logs() as logs:
        summary.observe(0.0, status(State.DATA_SYNC), Rates())
        summary.observe(10.0, status(State.DATA_SYNC, changes=3, rows=50), Rates({"t": 5.0}, {"t": 0.25}))
    (line,) = logs
    assert line["tables"] == {"data_sync": 1}
    assert (line["copied_rows"], line["copied_rows_per_s"], line["changes"], line["changes_per_s"]) == (50, 5, 3, 0.2)
    assert line["lsn"] == "0/20"
