"""Several destinations of one pipeline: each at its own pace, with its own errors; one slot, one spool."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from failing import Failures
from headrace.config.pipeline import InvalidatedSlotBehavior, PipelineConfig
from headrace.destinations import MemoryDestination
from headrace.errors import DestinationConnectionFailed, DestinationRejected, PipelineStateError
from headrace.lsn import Lsn
from headrace.pipeline import Pipeline, PipelineState, lane_run, lanes
from headrace.pipeline.build import build_store
from headrace.pipeline.status import DestinationState, DestinationStatus
from headrace.postgres.slots import drop_slot
from headrace.stores import MemoryStore, PipelineStore
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.faulty_destination import FaultyDestination
from pipelining import PATIENCE_S, Piped, assert_equal_tables, destination_rows, pipeline_config, source_rows

Connection = psycopg.Connection[Any]

A, B = "public.a", "public.b"


@pytest.fixture(autouse=True)
def source(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        connection.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text)")
        connection.execute(f"INSERT INTO {name} (note) SELECT 'copied' FROM generate_series(1, 20)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
    monkeypatch.setattr(lane_run, "_FIRST_DELAY_S", 0.05)
    monkeypatch.setattr(lane_run, "_LONGEST_DELAY_S", 0.2)


def away() -> Exception:
    return DestinationConnectionFailed("the destination is away", hint="plug it in")


def rejected() -> Exception:
    return DestinationRejected("the destination has no such type", hint="give it one")


@dataclass
class Scene:
    """A pipeline to `well`, which never fails, and `sick`, which does as it is told."""

    config: PipelineConfig
    spark: Any
    well: DurableDestination
    sick: DurableDestination
    failures: Failures = field(default_factory=Failures)
    stores: dict[str, PipelineStore] = field(default_factory=dict)

    def pipeline(self) -> Pipeline:
        destinations = {"well": self.well, "sick": FaultyDestination(self.sick, self.failures)}
        for store in self.stores.values():
            store.close()
        self.stores = {name: build_store(self.config, name) for name in destinations}
        return Pipeline(self.config, self.stores, destinations, spark=self.spark)

    def begin(self, method: str, error: Any, *tables: str | None) -> None:
        for table in tables or (None,):
            self.failures.begin(method, table, error)

    def end(self, method: str, *tables: str | None) -> None:
        for table in tables or (None,):
            self.failures.end(method, table)

    def close(self) -> None:
        for one in (*self.stores.values(),):
            one.close()
        self.well.shutdown()
        self.sick.shutdown()


@pytest.fixture
def scene(conninfo: str, spark: Any, tmp_path: Path) -> Iterator[Scene]:
    config = pipeline_config(conninfo, tmp_path, table_error_retry_max_attempts=1000)
    it = Scene(config, spark, DurableDestination(tmp_path / "well.db"), DurableDestination(tmp_path / "sick.db"))
    yield it
    it.close()


@pytest.fixture
def whole(scene: Scene) -> Scene:
    """The sick one commits all tables of a batch at once."""
    scene.sick.whole_batches = True
    return scene


class Fanned(Piped):
    def of(self, name: str) -> DestinationStatus:
        return self.status.destinations[name]

    def until_state(self, name: str, state: DestinationState) -> None:
        self.until(lambda: name in self.status.destinations and self.of(name).state is state)

    def until_ready(self, *tables: str, timeout: float = PATIENCE_S) -> None:
        """Also none is missing of all: each destination takes its tables up by itself."""
        if not tables:
            self.until(lambda: all(one.tables for one in self.status.destinations.values()), timeout)
        super().until_ready(*tables, timeout=timeout)

    def until_equal(self, connection: Connection, *destinations: Any) -> None:
        """Each has what the source has; asked by rows, since not all of them move."""
        for destination in destinations:
            for table in (A, B):
                self.until(lambda d=destination, t=table: rows_of(d, t) == source_rows(connection, t))


def rows_of(destination: Any, table: str) -> list[str] | None:
    try:
        return destination_rows(destination, table)
    except KeyError:
        return None


def started(pipeline: Pipeline) -> Fanned:
    pipeline.start()
    return Fanned(pipeline)


def change(connection: Connection, note: str = "streamed") -> None:
    for table in "ab":
        connection.execute(f"INSERT INTO {table} (note) VALUES (%s), (repeat('x', 2000))", (note,))
    connection.execute("UPDATE a SET note = note || '!' WHERE id % 3 = 0; DELETE FROM b WHERE id % 7 = 0")


def assert_no_change_twice(*destinations: DurableDestination) -> None:
    for destination in destinations:
        for table in (A, B):
            places = [(one.commit_lsn, one.tx_ordinal) for one in destination.change_log(table)]
            assert len(places) == len(set(places)) > 0, table


def states_of(store: PipelineStore) -> list[State]:
    """All that its tables went through."""
    return [entry.state.state for table in store.get_table_states() for entry in store.get_table_state_history(table)]


def slots(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()").fetchone()
    assert row is not None
    return int(row[0])


def spooled(config: PipelineConfig) -> set[str]:
    """The segments that are there."""
    return {path.name for path in (config.directory / "spool").glob("*.arrow")}


def test_every_destination_becomes_the_source_and_a_restart_goes_on(scene: Scene, connection: Connection) -> None:
    with scene.pipeline() as pipeline:
        running = started(pipeline)
        running.until_ready("well/public.a", "well/public.b", "sick/public.a", "sick/public.b")
        change(connection)
        running.until_applied(connection)
        assert_equal_tables(connection, scene.well, A, B)
        assert_equal_tables(connection, scene.sick, A, B)
        status = running.status
        assert {name: one.state for name, one in status.destinations.items()} == {
            "well": DestinationState.RUNNING,
            "sick": DestinationState.RUNNING,
        }
        assert set(status.destinations["sick"].tables) == {A, B}
        assert status.applied == min(one.applied for one in status.destinations.values())
        assert slots(connection) == 1
    pipeline.wait()
    change(connection, "meanwhile")
    with scene.pipeline() as pipeline:
        running = started(pipeline)
        running.until_equal(connection, scene.well, scene.sick)
    pipeline.wait()
    assert_no_change_twice(scene.well, scene.sick)
    for store in scene.stores.values():
        assert states_of(store).count(State.DATA_SYNC) == 2, "copied once"


def test_tables_that_fail_at_one_destination_are_not_missed_at_the_other(scene: Scene, connection: Connection) -> None:
    with scene.pipeline() as pipeline:
        running = started(pipeline)
        running.until_ready()
        scene.begin("write_events", away, A, B)
        for round in range(3):
            change(connection, f"round {round}")
            running.until_equal(connection, scene.well)
            assert len(scene.sick.rows(A)) == 20
        running.until(lambda: running.of("sick").tables[A].state.state is State.ERRORED)
        assert {table.state.state for table in running.of("well").tables.values()} == {State.READY}
        assert running.of("sick").state is DestinationState.RUNNING
        scene.end("write_events", A, B)
        running.until_equal(connection, scene.well, scene.sick)
        running.until_ready()
    pipeline.wait()
    assert_no_change_twice(scene.well, scene.sick)
    assert State.ERRORED not in states_of(scene.stores["well"])


def test_a_destination_that_fails_as_a_whole_comes_back_by_itself(whole: Scene, connection: Connection) -> None:
    with whole.pipeline() as pipeline:
        running = started(pipeline)
        running.until_ready()
        whole.begin("write_events", away, A, B)
        change(connection)
        told = ("the destination is away", "plug it in")
        running.until(lambda: (running.of("sick").error, running.of("sick").hint) == told)
        before = running.of("well").applied
        for round in range(3):
            change(connection, f"round {round}")
            running.until_equal(connection, whole.well)
        running.until(lambda: running.of("sick").attempts > 3)
        assert running.of("well").applied > before
        assert len(whole.sick.rows(A)) == 20
        assert running.status.state is PipelineState.RUNNING
        whole.end("write_events", A, B)
        running.until_equal(connection, whole.well, whole.sick)
        running.until_state("sick", DestinationState.RUNNING)
    pipeline.wait()
    assert_no_change_twice(whole.well, whole.sick)
    assert states_of(whole.stores["sick"]).count(State.DATA_SYNC) == 2, "no new copy"


@pytest.mark.long
def test_a_destination_that_does_not_open_for_a_while(scene: Scene, connection: Connection) -> None:
    scene.begin("startup", away)
    with scene.pipeline() as pipeline:
        running = started(pipeline)
        running.until_ready("well/public.a", "well/public.b")
        change(connection)
        running.until_equal(connection, scene.well)
        running.until_state("sick", DestinationState.WAITING)
        scene.end("startup")
        running.until_equal(connection, scene.well, scene.sick)
    pipeline.wait()


def test_a_destination_that_fails_for_good_leaves_the_others_alone(scene: Scene, connection: Connection) -> None:
    scene.begin("startup", rejected)
    with scene.pipeline() as pipeline:
        running = started(pipeline)
        running.until_state("sick", DestinationState.FAILED)
        running.until_ready("well/public.a", "well/public.b")
        change(connection)
        running.until_equal(connection, scene.well)
        assert (running.of("sick").error, running.of("sick").hint) == (
            "the destination has no such type",
            "give it one",
        )
        assert running.status.state is PipelineState.RUNNING
        metrics = pipeline.metrics
        assert metrics is not None
        up = {
            name: metrics.registry.get_sample_value(
                "headrace_destination_running", {"pipeline_id": "1", "destination": name}
            )
            for name in ("well", "sick")
        }
        assert up == {"well": 1, "sick": 0}
        with pytest.raises(PipelineStateError, match="sick is not running"):
            pipeline.resync("a")
        with pytest.raises(PipelineStateError, match="no destination lake"):
            pipeline.resync("a", destination="lake")
    pipeline.wait()
    scene.end("startup")
    change(connection, "meanwhile")
    with scene.pipeline() as pipeline:
        running = started(pipeline)
        running.until_equal(connection, scene.well, scene.sick)
    pipeline.wait()


def test_when_all_have_failed_the_pipeline_ends_and_leaves_no_slot(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    failures = Failures()
    failures.begin("startup", None, rejected)
    destinations = {name: FaultyDestination(MemoryDestination(), failures) for name in ("one", "two")}
    pipeline = Pipeline(pipeline_config(conninfo, tmp_path), lambda _: MemoryStore(), destinations, spark=spark)
    with pipeline:
        pipeline.start()
        with pytest.raises(DestinationRejected):
            pipeline.wait(120)
    assert pipeline.status.state is PipelineState.FAILED
    assert slots(connection) == 0


def test_the_spool_is_held_for_the_one_behind_and_released_after(whole: Scene, connection: Connection) -> None:
    whole.config = whole.config.model_copy(
        update={"spool": whole.config.spool.model_copy(update={"keep_seconds": 0.0})}
    )
    with whole.pipeline() as pipeline:
        running = started(pipeline)
        running.until_ready()
        whole.begin("write_events", away, A, B)
        change(connection)
        running.until_state("sick", DestinationState.WAITING)
        running.until_equal(connection, whole.well)
        held = spooled(whole.config)
        for round in range(3):
            change(connection, f"round {round}")
            running.until_equal(connection, whole.well)
            connection.execute("CHECKPOINT")
        behind = running.of("sick").applied
        assert behind < running.of("well").applied
        assert held & spooled(whole.config), "what the one behind needs is there"
        confirmed = Lsn.parse(
            connection.execute(
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE database = current_database()"
            ).fetchone()[0]  # type: ignore[index]
        )
        assert confirmed > behind, "the source keeps no WAL for it"
        whole.end("write_events", A, B)
        running.until_equal(connection, whole.well, whole.sick)
        running.until(lambda: not held & spooled(whole.config))
    pipeline.wait()


def test_a_broken_destination_gives_its_part_of_a_full_spool_up(
    whole: Scene, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_RELIEF_INTERVAL_S", 0.1)
    spool = whole.config.spool.model_copy(update={"keep_seconds": 0.0, "quota_bytes": 1 << 20})
    whole.config = whole.config.model_copy(update={"spool": spool})
    with whole.pipeline() as pipeline:
        running = started(pipeline)
        running.until_ready()
        whole.begin("write_events", away, A, B)
        change(connection)
        running.until_state("sick", DestinationState.WAITING)
        for _ in range(4):
            # More than the quota each, also compressed: without relief the receiver would stop reading.
            connection.execute(
                "INSERT INTO a (note) SELECT string_agg(md5((n * 100 + k)::text), '') "
                "FROM generate_series(1, 3000) n, generate_series(1, 32) k GROUP BY n"
            )
            connection.execute("DELETE FROM a WHERE length(note) = 1024")
            running.until_equal(connection, whole.well)
        # Only while it waits for its next try is it given up: all its tables are to begin anew.
        running.until(lambda: states_of(whole.stores["sick"]).count(State.INIT) > 2)
        whole.end("write_events", A, B)
        running.until_equal(connection, whole.well, whole.sick)
        running.until_ready()
        change(connection, "after")
        running.until_equal(connection, whole.well, whole.sick)
    pipeline.wait()
    assert states_of(whole.stores["sick"]).count(State.DATA_SYNC) > 2, "copied again"
    assert states_of(whole.stores["well"]).count(State.DATA_SYNC) == 2


def test_a_destination_that_hangs_while_the_spool_is_full_is_named(
    whole: Scene, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_RELIEF_INTERVAL_S", 0.1)
    monkeypatch.setattr(lanes, "_TELLING_INTERVAL_S", 2.0)
    spool = whole.config.spool.model_copy(update={"keep_seconds": 0.0, "quota_bytes": 1 << 20})
    whole.config = whole.config.model_copy(update={"spool": spool})
    answered = threading.Event()

    def hang() -> Exception:
        answered.wait()
        return away()

    with capture_logs() as logs, whole.pipeline() as pipeline:
        running = started(pipeline)
        running.until_ready()
        whole.begin("write_events", hang, A, B)
        try:
            connection.execute(
                "INSERT INTO a (note) SELECT string_agg(md5((n * 100 + k)::text), '') "
                "FROM generate_series(1, 3000) n, generate_series(1, 32) k GROUP BY n"
            )
            # The other one was perhaps named too, as long as it had as much to write.
            running.until_equal(connection, whole.well)
            logs.clear()
            running.until(lambda: any("the others wait for it" in str(entry["event"]) for entry in logs))
            assert running.of("sick").state is DestinationState.RUNNING
        finally:
            whole.end("write_events", A, B)
            answered.set()
        running.until_equal(connection, whole.well, whole.sick)
    pipeline.wait()
    told = [entry for entry in logs if "the others wait for it" in str(entry["event"])]
    assert {entry["destination"] for entry in told} == {"sick"}
    assert states_of(whole.stores["sick"]).count(State.DATA_SYNC) == 2, "it was not given up"


def test_one_destination_copies_a_table_again(scene: Scene, connection: Connection) -> None:
    with scene.pipeline() as pipeline:
        running = started(pipeline)
        running.until_ready()
        pipeline.resync("public.a", destination="sick")
        running.until(lambda: states_of(scene.stores["sick"]).count(State.DATA_SYNC) == 3)
        running.until_ready()
        assert states_of(scene.stores["well"]).count(State.DATA_SYNC) == 2
        pipeline.resync("public.b")
        running.until(lambda: states_of(scene.stores["well"]).count(State.DATA_SYNC) == 3)
        running.until(lambda: states_of(scene.stores["sick"]).count(State.DATA_SYNC) == 4)
        running.until_ready()
        change(connection)
        running.until_equal(connection, scene.well, scene.sick)
    pipeline.wait()


@pytest.mark.long
def test_a_destination_that_joins_later_is_copied_and_the_other_goes_on(scene: Scene, connection: Connection) -> None:
    """As it is written down: the one called default goes on where a pipeline's only destination was."""
    only, later = scene.well, scene.sick
    with Pipeline(scene.config, build_store(scene.config), only, spark=scene.spark) as pipeline:
        started(pipeline).until_ready()
    pipeline.wait()
    change(connection)
    stores = {name: build_store(scene.config, name) for name in ("default", "later")}
    with Pipeline(scene.config, stores, {"default": only, "later": later}, spark=scene.spark) as pipeline:
        running = started(pipeline)
        running.until_equal(connection, only, later)
        running.until_ready()
    pipeline.wait()
    assert states_of(stores["default"]).count(State.DATA_SYNC) == 2, "no new copy"
    for store in stores.values():
        store.close()


@pytest.mark.long
def test_one_that_was_away_for_longer_than_the_spool_is_copied_again(scene: Scene, connection: Connection) -> None:
    spool = scene.config.spool.model_copy(update={"keep_seconds": 0.0})
    scene.config = scene.config.model_copy(update={"spool": spool})
    with scene.pipeline() as pipeline:
        started(pipeline).until_ready()
    pipeline.wait()
    with Pipeline(scene.config, {"well": scene.stores["well"]}, {"well": scene.well}, spark=scene.spark) as pipeline:
        running = started(pipeline)
        change(connection)
        running.until_equal(connection, scene.well)
        first = spooled(scene.config)
        assert first
        change(connection, "later")
        running.until_equal(connection, scene.well)
        running.until(lambda: not first & spooled(scene.config))
    pipeline.wait()
    with scene.pipeline() as pipeline:
        running = started(pipeline)
        running.until_equal(connection, scene.well, scene.sick)
        running.until_ready()
    pipeline.wait()
    assert states_of(scene.stores["sick"]).count(State.DATA_SYNC) == 4
    assert states_of(scene.stores["well"]).count(State.DATA_SYNC) == 2


def test_copy_only_copies_to_all_and_tells_of_the_one_that_failed(scene: Scene, connection: Connection) -> None:
    scene.config = PipelineConfig.model_validate(scene.config.model_dump() | {"mode": "copy_only"})
    scene.begin("startup", away)
    with scene.pipeline() as pipeline:
        pipeline.start()
        with pytest.raises(DestinationConnectionFailed):
            pipeline.wait(180)
    assert_equal_tables(connection, scene.well, A, B)
    scene.end("startup")
    with scene.pipeline() as pipeline:
        pipeline.start()
        assert pipeline.wait(180)
    assert_equal_tables(connection, scene.sick, A, B)


@pytest.mark.long
def test_a_pipeline_that_is_killed_goes_on_at_each_destination(
    scene: Scene, connection: Connection, tmp_path: Path
) -> None:
    settings = tmp_path / "config.pickle"
    settings.write_bytes(pickle.dumps(scene.config))
    child = Path(__file__).with_name("fan_out_child.py")
    for _ in range(2):
        command = [sys.executable, str(child), str(settings), str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "ready\n"
                for round in range(5):
                    change(connection, f"round {round}")
                # In the middle of it: one of them has written something of this, at least.
                assert process.stdout.readline() == "writing\n"
            finally:
                process.kill()
    with scene.pipeline() as pipeline:
        running = started(pipeline)
        running.until_equal(connection, scene.well, scene.sick)
    pipeline.wait()
    assert_no_change_twice(scene.well, scene.sick)


@pytest.mark.long
def test_a_lost_slot_is_the_pipelines_own_and_all_are_copied_again(scene: Scene, connection: Connection) -> None:
    scene.config = scene.config.model_copy(update={"invalidated_slot_behavior": InvalidatedSlotBehavior.RECREATE})
    with scene.pipeline() as pipeline:
        running = started(pipeline)
        running.until_ready()
        drop_slot(connection, scene.config.slot_name, terminate=True)
        for name in ("well", "sick"):
            running.until(lambda name=name: states_of(scene.stores[name]).count(State.DATA_SYNC) == 4)
        running.until_ready()
        change(connection)
        running.until_equal(connection, scene.well, scene.sick)
        drop_slot(connection, scene.config.slot_name, terminate=True)
        scene.begin("startup", away)
        running.until(lambda: states_of(scene.stores["well"]).count(State.DATA_SYNC) == 6)
        assert pipeline.stop(60)
    assert pipeline.wait()
