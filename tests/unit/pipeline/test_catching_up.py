"""Catch-up ends, however fast the apply loop moves on."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from headrace.lsn import Lsn
from headrace.pipeline.catching_up import CatchUp
from headrace.table_state import State, TableState

SEGMENT = 100


@dataclass
class SpooledSegment:
    """As much of a segment as catch-up looks at."""

    start: Lsn
    end: Lsn
    size: int = 10


class Source:
    """A spool that grows by one segment whenever a batch is written, and an apply loop that is always at its end."""

    def __init__(self, segments: int, *, segments_per_write: int, segment_bytes: int = 10) -> None:
        self.count, self._per_write, self._bytes = segments, segments_per_write, segment_bytes
        self.writes = 0
        self.states: list[State] = []
        self.table: Any = SimpleNamespace(
            name="s.t", state=TableState(State.FINISHED_COPY), position=Lsn(0), written=Lsn(0), handoff=None,
            pending=False, busy=True,
        )  # fmt: skip

    def applied(self) -> Lsn:
        return Lsn(self.count * SEGMENT)

    def segments(self, after: Lsn, until: Lsn | None = None) -> list[SpooledSegment]:
        every = (Lsn(n * SEGMENT) for n in range(self.count))
        return [SpooledSegment(s, Lsn(s + SEGMENT), self._bytes) for s in every if s + SEGMENT > after]

    def write(self, _table: Any, _end: Lsn, _segments: list[SpooledSegment]) -> None:
        self.writes += 1
        self.count += self._per_write
        assert self.writes < 100, "it never ends"

    def move(self, tables: list[Any], state: State, _lsn: Lsn | None = None) -> None:
        for table in tables:
            table.state = TableState(state, lsn=_lsn)
        self.states.append(state)

    def advance(self, table: Any, end: Lsn) -> None:
        table.position = table.written = end

    def run(self, budget: int) -> None:
        engine: Any = SimpleNamespace(
            tables=SimpleNamespace(
                move=self.move, advance=self.advance, all=lambda: [self.table], acknowledge=lambda *_: None
            ),
            destination=None,
            batches=SimpleNamespace(segments=self.segments),
            reception=SimpleNamespace(wait=lambda _until, _timeout: True),
            memory=SimpleNamespace(wait_until_resumed=lambda _timeout: None),
            check_stop=lambda: None,
            read=lambda table, _end, _segments: table,
            write=self.write,
            announce=lambda: None,
        )
        catch_up = CatchUp(engine, self.applied)
        catch_up.budget = lambda: budget  # type: ignore[method-assign]
        catch_up.run(self.table)


def test_it_ends_though_the_apply_loop_is_ahead_again_after_every_write() -> None:
    source = Source(50, segments_per_write=1)
    source.run(budget=1_000)
    assert source.states == [State.SYNC_WAIT, State.CATCHUP, State.SYNC_DONE]
    assert (source.writes, source.table.position) == (1, Lsn(50 * SEGMENT))


def test_it_goes_on_while_more_is_left_than_one_batch_holds() -> None:
    source = Source(64, segments_per_write=4)
    source.run(budget=80)
    # Eight segments a write, four new ones each: the rest is small enough when eight or fewer are left.
    left = source.count - source.table.position // SEGMENT
    assert source.states[-1] is State.SYNC_DONE
    assert source.writes > 8
    assert 0 < left <= 8
