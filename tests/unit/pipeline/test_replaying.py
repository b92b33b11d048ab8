"""A log replayed: into another destination, from where that stands, up to a moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from duckdb_reading import DuckDBFile, duckdb_settings
from headrace.config.parquet import ParquetConfig
from headrace.destinations.contract import Destination, DestinationContext
from headrace.destinations.duckdb import DuckDBDestination
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.null import NullDestination
from headrace.destinations.parquet import ParquetDestination, open_log
from headrace.errors import ConfigError, DestinationRejected, TableNotFound
from headrace.events import Begin, Commit, Delete, Event, Insert, Relation, Truncate
from headrace.lsn import Lsn
from headrace.pipeline.replaying import Positions, Replay, Replayed
from headrace.stores import MemoryStore
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.example_tables import ORDERS, VISITS, altered_table, example_column, example_table
from headrace.testing.faulty_destination import FaultyDestination
from headrace.testing.local_rows import (
    Altered,
    Deleted,
    Happening,
    Inserted,
    Truncated,
    Updated,
    batch_of,
    batch_per_table,
    local_rows,
    transaction,
)

CONTEXT = DestinationContext(1, MemoryStore(), None)
# Copies made by hand are of now; the commits of these tests come after.
NOON = datetime.now(UTC) + timedelta(hours=1)


class Source:
    """A log, and the same rows at a destination that was written to directly."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.copies = MemoryStore()
        self.log = ParquetDestination(ParquetConfig(location=str(location)))
        self.log.startup(CONTEXT)
        self.log.claim()
        self.direct = MemoryDestination()
        for destination in (self.log, self.direct):
            destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(key) for key in range(5)]), 0)
            destination.write_table_rows(VISITS, local_rows(VISITS, [visit("a")] * 2), 0)

    def change(self, lsn: int, *happened: Happening, minutes: int = 0) -> None:
        moment = NOON + timedelta(minutes=minutes)
        events = [_at(event, moment) for event in transaction(Lsn(lsn), *happened)]
        for part in batch_per_table(batch_of(events, end=Lsn(lsn + 10))):
            self.log.write_events(part)
            self.direct.write_events(part)

    def replay(self, destination: Destination, stopping: Callable[[], bool] = lambda: False, **how: Any) -> Positions:
        log = open_log(str(self.location))
        return Replay(log, destination, CONTEXT, self.copies, stopping=stopping).run(**how)

    def copied_anew(self, *keys: int) -> None:
        """As by a resync."""
        self.log.drop_table_for_copy(ORDERS)
        self.log.write_table_rows(ORDERS, local_rows(ORDERS, [order(key) for key in keys]), 0)


def _at(event: Event, time: datetime) -> Event:
    return replace(event, commit_time=time) if hasattr(event, "commit_time") else event


def order(key: int, name: str = "a") -> dict[str, object]:
    return {"id": key, "name": name, "note": None}


def visit(page: str) -> dict[str, object]:
    return {"page": page, "seconds": 1}


def keys(destination: MemoryDestination, table: str = "public.orders") -> list[int]:
    return sorted(destination.rows(table)["id"].to_pylist())


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "log")


WIDER = altered_table(ORDERS, *ORDERS.table.columns, example_column("more", 4))


def much(source: Source) -> None:
    source.change(100, Inserted(ORDERS, order(10)), Inserted(VISITS, visit("b")), minutes=1)
    source.change(200, Updated(ORDERS, order(11), old={"id": 10}), Deleted(VISITS, visit("a")), minutes=2)
    source.change(300, Altered(ORDERS, WIDER), Inserted(WIDER, {**order(12), "more": "x"}), minutes=3)
    source.change(400, Truncated((WIDER, VISITS)), Inserted(WIDER, {**order(13), "more": "y"}), minutes=4)
    source.change(500, Inserted(WIDER, {**order(14), "more": None}), Inserted(VISITS, visit("c")), minutes=5)


def test_it_gives_what_a_pipeline_would_have_written(source: Source) -> None:
    much(source)
    replayed = MemoryDestination()
    assert source.replay(replayed) == {ORDERS.table.name: 510, VISITS.table.name: 510}
    for table in ("public.orders", "public.visits"):
        assert replayed.rows(table).equals(source.direct.rows(table))


def test_events_stand_between_begin_and_commit(source: Source) -> None:
    much(source)

    class Whole(MemoryDestination):
        whole_batches = True

    replayed = Whole()
    source.replay(replayed)
    events = [event for event in replayed.events() if event.commit_lsn >= 300]
    assert [type(event) for event in events] == [
        Begin, Relation, Insert, Commit, Begin, Truncate, Insert, Commit, Begin, Insert, Insert, Commit,
    ]  # fmt: skip
    truncate = next(event for event in events if isinstance(event, Truncate))
    assert {schema.table.id for schema in truncate.schemas} == {ORDERS.table.id, VISITS.table.id}
    assert not [event for event in events if isinstance(event, Delete)]


def test_one_that_was_cut_off_goes_on(source: Source, tmp_path: Path) -> None:
    much(source)
    failures = iter([False, True, False, False, True, False, True])

    def fail(method: str, _table: str | None) -> None:
        if method in ("write_events", "write_table_rows") and next(failures, False):
            raise ConnectionError

    def target() -> FaultyDestination:
        return FaultyDestination(DurableDestination(tmp_path / "target.db"), fail)

    for _ in range(3):
        with pytest.raises(ConnectionError):
            source.replay(target())
    source.replay(target())
    written = DurableDestination(tmp_path / "target.db")
    written.startup(CONTEXT)
    written.claim()
    assert sorted(row["id"] for row in written.rows("public.orders")) == [13, 14]
    changes = [(change.commit_lsn, change.tx_ordinal) for change in written.change_log("public.orders")]
    assert len(changes) == len(set(changes)) == 6
    # And with what the log has got since.
    source.change(600, Inserted(WIDER, {**order(15), "more": None}))
    source.replay(target())
    assert sorted(row["id"] for row in written.rows("public.orders")) == [13, 14, 15]
    assert len(written.change_log("public.orders")) == 7


def test_it_stops_between_two_commits(source: Source) -> None:
    much(source)
    replayed = MemoryDestination()
    asked = iter([False, False, False, False, True])
    assert source.replay(replayed, stopping=lambda: next(asked)) == {ORDERS.table.name: 210, VISITS.table.name: 210}
    assert keys(replayed) == [0, 1, 2, 3, 4, 11]
    assert source.replay(replayed) == {ORDERS.table.name: 510, VISITS.table.name: 510}
    assert keys(replayed) == [13, 14]


def test_each_table_has_its_own_position(source: Source) -> None:
    orders, visits = ORDERS.table.name, VISITS.table.name
    replayed = MemoryDestination()
    assert source.replay(replayed) == {orders: None, visits: None}
    source.change(100, Inserted(ORDERS, order(10)))
    assert source.replay(replayed) == {orders: 110, visits: None}
    source.change(200, Inserted(VISITS, visit("b")))
    source.change(300, Inserted(VISITS, visit("c")))
    assert source.replay(replayed, until=Lsn(250)) == {orders: 110, visits: 251}
    assert source.replay(replayed) == source.replay(replayed) == {orders: 110, visits: 310}


def test_all_tables_as_of_a_commit(source: Source) -> None:
    much(source)
    replayed = MemoryDestination()
    source.replay(replayed, until=Lsn(300))
    assert keys(replayed) == [0, 1, 2, 3, 4, 11, 12]
    assert sorted(replayed.rows("public.visits")["page"].to_pylist()) == ["a", "b"]
    before = MemoryDestination()
    source.replay(before, until=Lsn(299))
    assert keys(before) == [0, 1, 2, 3, 4, 11]
    assert "more" not in before.rows("public.orders").column_names


def test_a_commit_within_a_batch(tmp_path: Path) -> None:
    source = Source(tmp_path / "log")
    happened: list[tuple[Happening, ...]] = [
        (Truncated((ORDERS,)), Inserted(ORDERS, order(10))),
        (Inserted(ORDERS, order(11)), Deleted(ORDERS, {"id": 10})),
        (Altered(ORDERS, WIDER), Inserted(WIDER, {**order(12), "more": "x"})),
        (Inserted(WIDER, {**order(13), "more": "y"}),),
    ]
    events = [event for number, some in enumerate(happened) for event in transaction(Lsn(100 + number), *some)]
    source.log.write_events(batch_of(events, end=Lsn(200)))
    durable = DurableDestination(tmp_path / "target.db")
    replayed = MemoryDestination()
    # One commit more each time: what is there already does not come again.
    for until, expected in ((100, [10]), (101, [11]), (102, [11, 12]), (None, [11, 12, 13])):
        for destination in (durable, replayed):
            source.replay(destination, until=None if until is None else Lsn(until))
        assert keys(replayed) == expected
        durable.startup(CONTEXT)
        durable.claim()
        assert sorted(row["id"] for row in durable.rows("public.orders")) == expected
    changes = [(change.commit_lsn, change.tx_ordinal) for change in durable.change_log("public.orders")]
    assert len(changes) == len(set(changes))
    inserted = [event.commit_lsn for event in replayed.events() if isinstance(event, Insert)]
    assert inserted == sorted(set(inserted))


def test_values_that_no_type_holds_within_a_batch(tmp_path: Path) -> None:
    source = Source(tmp_path / "log")
    dated = example_table(78, "dated", {"id": "int8", "day": "date"}, ("id",))
    source.log.write_table_rows(dated, local_rows(dated, []), 0)
    happened = [transaction(Lsn(100 + number), Inserted(dated, {"id": number, "day": None})) for number in range(3)]
    rejected = [
        {"key": "{}", "column": "day", "text": "infinity", "commit_lsn": 100 + number, "tx_ordinal": 0}
        for number in range(3)
    ]
    source.log.write_events(batch_of(*happened, end=Lsn(200), rejected=rejected))
    path = tmp_path / "target.duckdb"
    for until in (100, 101, 102):
        source.replay(DuckDBDestination(duckdb_settings(path)), until=Lsn(until))
        assert DuckDBFile(path).table(("headrace", "quarantine_1")).num_rows == until - 99
        assert DuckDBFile(path).table(("public", "dated")).num_rows == until - 99


def test_all_tables_as_of_a_moment(source: Source) -> None:
    much(source)
    replayed = MemoryDestination()
    source.replay(replayed, until=NOON + timedelta(minutes=4, seconds=30))
    assert keys(replayed) == [13]
    assert replayed.rows("public.visits").num_rows == 0
    everything = MemoryDestination()
    source.replay(everything, until=NOON + timedelta(hours=1))
    assert keys(everything) == [13, 14]


def test_a_moment_before_the_copy_is_refused(source: Source) -> None:
    much(source)
    with pytest.raises(ConfigError, match="does not reach back"):
        source.replay(MemoryDestination(), until=NOON - timedelta(hours=2))


@pytest.mark.parametrize("start", [800, 105], ids=["later", "looking back"])
def test_a_log_that_was_begun_anew_is_copied_anew(source: Source, start: int) -> None:
    replayed = MemoryDestination()
    source.change(100, Inserted(ORDERS, order(10)))
    source.replay(replayed)
    source.copied_anew(77)
    events = transaction(Lsn(900), Inserted(ORDERS, order(78)))
    source.log.write_events(batch_of(events, start=Lsn(start), end=Lsn(910)))
    source.replay(replayed)
    assert keys(replayed) == [77, 78]


@pytest.mark.parametrize("changed", [False, True])
def test_a_new_copy_without_changes_yet(source: Source, changed: bool) -> None:
    replayed = MemoryDestination()
    if changed:
        source.change(100, Inserted(ORDERS, order(10)))
    source.replay(replayed)
    source.copied_anew(77)
    source.replay(replayed)
    assert keys(replayed) == [77]
    # From here on it is the known one.
    source.change(200, Inserted(ORDERS, order(78)))
    source.replay(replayed)
    assert keys(replayed) == [77, 78]


def test_a_destination_with_rows_of_another_log_is_written_anew(source: Source, tmp_path: Path) -> None:
    replayed = MemoryDestination()
    source.change(100, Inserted(ORDERS, order(10)))
    source.replay(replayed)
    other = Source(tmp_path / "other")
    other.copied_anew(77)
    other.replay(replayed)
    assert keys(replayed) == [77]


def test_fresh_writes_all_anew(source: Source) -> None:
    source.change(100, Inserted(ORDERS, order(10)))
    replayed = MemoryDestination()
    source.replay(replayed)
    replayed.write_table_rows(ORDERS, local_rows(ORDERS, [order(99)]), 5)
    source.replay(replayed)
    assert 99 in keys(replayed)
    source.replay(replayed, fresh=True)
    assert keys(replayed) == [0, 1, 2, 3, 4, 10]


def test_a_change_that_the_destination_cannot_follow_is_told(source: Source) -> None:
    much(source)

    class Rigid(MemoryDestination):
        def follows(self, relation: Relation) -> bool:
            return False

    with pytest.raises(DestinationRejected, match=r"public.orders was altered at 0/12C"):
        source.replay(Rigid())


def test_a_table_without_columns(tmp_path: Path) -> None:
    source = Source(tmp_path)
    bare = example_table(77, "bare", {})
    source.log.write_table_rows(bare, local_rows(bare, []), 0)
    source.log.write_events(batch_of(transaction(Lsn(100), Inserted(bare, {}), Inserted(bare, {})), end=Lsn(110)))
    counting = NullDestination()
    source.replay(counting)
    assert counting.counts("public.bare").changes == 2


def test_progress_is_told_in_commits(source: Source) -> None:
    much(source)
    told: list[Replayed] = []
    log = open_log(str(source.location))
    Replay(log, MemoryDestination(), CONTEXT, MemoryStore(), progress=told.append).run()
    assert told[0] == Replayed(0, 11, "public.orders")
    assert (told[-1].done, told[-1].total) == (11, 11)
    assert [each.done for each in told] == sorted(each.done for each in told)


def test_an_empty_log(tmp_path: Path) -> None:
    log = ParquetDestination(ParquetConfig(location=str(tmp_path)))
    log.startup(CONTEXT)
    log.claim()
    with pytest.raises(TableNotFound, match="no tables"):
        Replay(open_log(str(tmp_path)), MemoryDestination(), CONTEXT, MemoryStore()).run()
