"""Lines of JSON keep the promises of the contract: who reads them has the rows there are, also after a crash."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import pytest

from headrace.destinations.stdout import StdoutDestination
from headrace.schema import TableName
from headrace.testing.destination_suite import DestinationSuite, Moment, Values
from headrace.testing.gaps import Gap, GapKind
from line_reading import LineReader

NO_WAY_BACK = Gap(GapKind.ENGINE_CANNOT, "what was printed cannot be asked for")
ONLY_EVENTS = Gap(GapKind.ENGINE_CANNOT, "it is a log of every change, with no other form")


class Interruption(Exception):
    """What a flush fails with."""


class Pipe(io.TextIOBase):
    """What was flushed has been read by somebody; what was not is lost with the process."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.failing: Moment | None = None
        self._written: list[str] = []

    def write(self, line: str) -> int:
        self._written.append(line)
        return len(line)

    def flush(self) -> None:
        moment, self.failing = self.failing, None
        # A process that dies may have printed a part of it.
        self.read += self._written[:-1] if moment is Moment.BEFORE_COMMIT else self._written
        self._written = []
        if moment is not None:
            raise Interruption


class TestStdoutDestination(DestinationSuite):
    title = "stdout"
    gaps: ClassVar = {
        "claim": Gap(GapKind.ENGINE_CANNOT, "a stream does not tell who writes to it"),
        "in_mode": ONLY_EVENTS,
        "test_the_lsn_is_on_record": NO_WAY_BACK,
        "test_a_table_that_is_copied_anew_forgets_its_lsn": NO_WAY_BACK,
        "test_a_crash_after_the_commit": NO_WAY_BACK,
        "test_a_restart_finds_all_at_the_destination": NO_WAY_BACK,
        "test_a_part_that_comes_again_is_added_once": NO_WAY_BACK,
        "test_a_part_that_could_not_be_read_comes_again": NO_WAY_BACK,
        "test_a_part_interrupted_before_its_commit_comes_again": NO_WAY_BACK,
        "test_a_part_interrupted_after_its_commit_comes_again": NO_WAY_BACK,
        "test_a_copy_that_was_cut_short_is_begun_anew": NO_WAY_BACK,
        "test_a_new_copy_that_a_restart_cut_short_is_begun_anew": NO_WAY_BACK,
    }

    @pytest.fixture
    def destination(self) -> StdoutDestination:
        self.pipe = Pipe()
        return self.opened()

    def opened(self) -> StdoutDestination:
        return StdoutDestination(self.pipe, "json")

    def read(self, destination: StdoutDestination, table: TableName) -> Sequence[Values]:
        reader = LineReader()
        reader.feed(self.pipe.read)
        return reader.rows(str(table))

    def quarantined(self, destination: StdoutDestination, table: TableName) -> Sequence[Values]:
        reader = LineReader()
        reader.feed(self.pipe.read)
        return reader.rejected(str(table))

    def reopened(self, destination: StdoutDestination) -> StdoutDestination:
        """Another process that prints into the same place."""
        return self.opened()

    @contextmanager
    def interrupted(self, destination: StdoutDestination, moment: Moment) -> Iterator[None]:
        self.pipe.failing = moment
        yield
        assert self.pipe.failing is None, "nothing was printed"
