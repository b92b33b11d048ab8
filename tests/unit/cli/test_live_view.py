"""The live view: what it shows of which status."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from headrace.cli.live_view import Subject, chosen, render, state_counts
from headrace.cli.rates import Rates
from headrace.errors import RetryPolicy, SourceConnectionFailed
from headrace.lsn import Lsn
from headrace.pipeline.copy_progress import CopyView
from headrace.pipeline.status import DestinationState, DestinationStatus, PipelineState, PipelineStatus, TableStatus
from headrace.replication import ReceiverStatus
from headrace.table_state import State, TableState

SUBJECT = Subject(7, "me@db:5432/shop", "pub", "headrace_7", "iceberg")
NO_RATES = Rates()


def table(name: str, state: State = State.READY, changes: int = 0, **copy: float | None) -> TableStatus:
    needs_lsn = state in (State.CATCHUP, State.SYNC_DONE)
    reason = ("bad\n  type", "alter it", RetryPolicy.TIMED) if state is State.ERRORED else (None, None, None)
    whole = TableState(state, Lsn(1) if needs_lsn else None, *reason)
    return TableStatus(name, whole, Lsn(0x16B3748), CopyView(**copy), 2, changes)  # type: ignore[arg-type]


def status(*tables: TableStatus, **more: object) -> PipelineStatus:
    return PipelineStatus(PipelineState.RUNNING, {one.key: one for one in tables}, **more)  # type: ignore[arg-type]


def text(shown: PipelineStatus, rates: Rates = NO_RATES, width: int = 140, **options: object) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(render(SUBJECT, shown, rates, **options))  # type: ignore[arg-type]
    return out.getvalue()


def line(printed: str, word: str) -> str:
    return next(line for line in printed.splitlines() if word in line)


def test_a_pipeline_that_waits_for_its_publication_says_so() -> None:
    printed = text(replace(status(), state=PipelineState.WAITING))
    assert "pipeline 7  waiting for the publication, which does not exist" in printed
    assert "running" not in line(printed, "pipeline 7")


def test_the_header_says_what_runs_where_and_how_far_behind() -> None:
    shown = status(lag_bytes=3 << 20, lag_seconds=0.4, spool_bytes=512, memory_used_ratio=0.43, applied=Lsn(0x16B3748))
    printed = text(shown, seconds=75)
    assert "pipeline 7  running  1:15" in printed
    for part in ("me@db:5432/shop", "publication pub", "slot headrace_7", "destination iceberg"):
        assert part in printed
    assert "lag 3.0 MB, 0.4 s" in printed
    assert "spool 512 B" in printed
    assert "memory 43%" in printed
    assert "applied 0/16B3748" in printed


def test_what_is_not_known_yet_is_no_zero() -> None:
    assert "lag -, -   spool -" in text(PipelineStatus(PipelineState.STARTING))


def test_trouble_of_receiver_and_memory_is_said() -> None:
    problem = SourceConnectionFailed("no server")
    printed = text(status(memory_short=True, receiver=ReceiverStatus("retrying", problem=problem)))
    assert "reading pauses" in printed
    assert "retrying (no server)" in printed


def test_a_copy_has_a_bar_with_rows_estimate_rate_and_time_left() -> None:
    copying = table(
        "public.orders", State.DATA_SYNC,
        ranges=8, ranges_done=2, rows=500_000, estimated_rows=2_000_000, seconds=5.0, seconds_left=15.0,
    )  # fmt: skip
    shown = line(text(status(copying), Rates({"public.orders": 120_000.0})), "public.orders")
    assert "copying" in shown
    assert "━" in shown
    assert "25%  500.0 k of ~2.0 M rows  0:15 left" in shown
    assert "120.0 k/s" in shown


def test_a_copy_that_told_nothing_yet_claims_no_share() -> None:
    assert "%" not in line(text(status(table("t", State.DATA_SYNC, ranges=4, estimated_rows=10))), "copying  ")


def test_a_streaming_table_shows_changes_and_position() -> None:
    streaming = status(table("public.orders", changes=12_345, rows=10))
    streamed = line(text(streaming, Rates({}, {"public.orders": 8.0})), "public.orders")
    assert "ready" in streamed
    assert "12,345 changes, 10 rows copied" in streamed
    assert "8.0/s" in streamed
    assert "0/16B3748" in streamed


def test_a_failed_table_shows_reason_and_remedy_on_one_line() -> None:
    shown = line(text(status(table("public.bad", State.ERRORED))), "public.bad")
    assert "tries again (failed 2 times): bad type → alter it" in shown


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    assert "public.[red]x" in text(status(table("public.[red]x")))


def test_of_many_tables_the_interesting_ones_are_shown_and_the_rest_counted() -> None:
    quiet = [table(f"public.t{number:03}") for number in range(300)]
    busy = replace(quiet[250], changes=9)
    tables = [
        *quiet[:250],
        busy,
        *quiet[251:],
        table("public.copied", State.DATA_SYNC),
        table("public.bad", State.ERRORED),
    ]
    rates = Rates({}, {busy.name: 50.0})
    names = [one.name for one in chosen(tables, rates, 4)]
    assert names == ["public.bad", "public.copied", "public.t250", "public.t000"]
    printed = text(status(*tables), rates, room=(140, 4))
    assert "… and 298 more  302 tables: 1 copying, 300 ready, 1 errored" in printed
    assert len(printed.splitlines()) == 3 + 1 + 1 + 4 + 1


def test_a_small_terminal_shows_one_table_at_least() -> None:
    assert len(chosen([table("a"), table("b")], NO_RATES, -3)) == 1


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_line_fits_the_terminal(width: int) -> None:
    tables = (table("public." + "x" * 60, State.ERRORED), table("y" * 90, State.DATA_SYNC, rows=3, estimated_rows=9))
    printed = text(status(*tables), width=width, room=(width, 5))
    assert max(map(len, printed.splitlines())) <= width
    assert len(printed.splitlines()) == 3 + 1 + 1 + 2 + 1


def test_stopping_is_said_with_the_way_out() -> None:
    assert "stopping…  0.0 s  finishing the batch under way; once more to stop at once" in text(status(), stopping=True)


def test_what_has_stopped_is_no_longer_stopping() -> None:
    printed = text(PipelineStatus(PipelineState.STOPPED), stopping=True)
    assert "stopped" in printed
    assert "once more" not in printed


def test_states_are_counted_in_the_order_of_a_tables_life() -> None:
    assert state_counts(status(table("a"), table("b", State.INIT), table("c"))) == "1 waiting, 2 ready"


def test_several_destinations_are_told_apart_and_those_out_of_order_on_top() -> None:
    lake, duck = (replace(table("public.orders"), destination=name) for name in ("lake", "duck"))
    waiting = DestinationStatus("duck", DestinationState.WAITING, error="it is\n  away", hint="plug it in", attempts=3)
    well = DestinationStatus("lake", DestinationState.RUNNING)
    printed = text(
        status(lake, duck, destinations={"lake": well, "duck": waiting}), Rates({}, {"lake/public.orders": 7.0})
    )
    assert "duck starts again by itself (failed 3 times): it is away → plug it in" in printed
    assert "7.0/s" in line(printed, "lake/public.orders")
    assert "7.0/s" not in line(printed, "duck/public.orders")
    failed = replace(waiting, state=DestinationState.FAILED)
    assert "duck failed: it is away" in text(status(lake, destinations={"duck": failed}))
    assert "lake failed" not in printed
