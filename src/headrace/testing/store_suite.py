"""The conformance suite of stores: what `headrace.stores.contract` promises, as tests that any store can run.

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda pipeline_id: MyStore(tmp_path / "store", pipeline_id)

`open_store` opens the same place anew at each call. A store that lives in memory gives the same object for the same id.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from ..errors import IllegalTransition, RetryPolicy, RollbackImpossible
from ..lsn import Lsn
from ..schema import Column, PgType, ReplicaIdentity, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema
from ..schema_policy import Target
from ..stores.contract import HISTORY_KEPT, PipelineStore
from ..stores.records import APPLY, DestinationTableMetadata, Heartbeat, SchemaStatus, SchemaVersion, Worker
from ..table_state import State, TableState
from .opened_stores import OpenedStores, OpenStore

__all__ = ["OpenStore", "StoreSuite", "example_schema"]

INIT, DATA_SYNC, FINISHED_COPY, READY = (
    TableState(state) for state in (State.INIT, State.DATA_SYNC, State.FINISHED_COPY, State.READY)
)
SYNC_DONE = TableState(State.SYNC_DONE, lsn=Lsn(0x1_0000_0010))
ERRORED = TableState(State.ERRORED, reason="disk full", solution="make room", retry_policy=RetryPolicy.TIMED)
TO_READY = (INIT, DATA_SYNC, FINISHED_COPY, SYNC_DONE, READY)

A, B = 16_385, 4_294_967_295
"""Two tables; OIDs are unsigned."""
LAST_LSN = Lsn((1 << 64) - 1)


def example_schema(table_id: int = A, *names: str) -> ReplicatedTableSchema:
    """A table with a key, an array, a domain, and the columns named besides."""
    text = PgType(25, "text")
    domain = PgType(20_001, "Größe", schema="my types", kind="d", base=PgType(1700, "numeric"), base_typmod=655_366)
    columns = (
        Column("id", 1, PgType(20, "int8"), nullable=False, key_position=1, default="nextval('s'::regclass)"),
        Column('na"me', 2, PgType(1009, "_text", element=text)),
        Column("size", 5, domain, default="'\\'::text"),
        *(Column(name, 6 + i, text) for i, name in enumerate(names)),
    )
    table = TableSchema(table_id, TableName("public", "Orders 2"), columns, ReplicaIdentity.INDEX, (1,))
    return ReplicatedTableSchema(table, ReplicationMask(frozenset({1, 5})), "(id > 0)")


def follow(store: PipelineStore, table_id: int, *states: TableState) -> None:
    """Move a table through states, one by one."""
    for state in states:
        store.update_table_states({table_id: state})


def history(store: PipelineStore, table_id: int) -> list[TableState]:
    return [entry.state for entry in store.get_table_state_history(table_id)]


def fill(store: PipelineStore, table_id: int, lsn: int = 100) -> None:
    """Give a table one of everything."""
    follow(store, table_id, *TO_READY)
    schema = example_schema(table_id)
    store.store_table_schema(schema, Lsn(lsn))
    store.update_progress(Worker(table_id), Lsn(lsn))
    store.store_destination_metadata(table_id, DestinationTableMetadata(f"t{table_id}", Lsn(lsn), schema.mask))


class StoreSuite(OpenedStores):
    """Subclass it with an `open_store` fixture; every test starts with an empty place."""

    def test_an_empty_store_knows_nothing(self, store: PipelineStore) -> None:
        assert store.get_table_state(A) is None
        assert store.get_table_states() == {}
        assert history(store, A) == []
        assert store.get_progress(APPLY) is None
        assert store.get_all_progress() == {}
        assert store.get_table_schema(A, LAST_LSN) is None
        assert list(store.get_table_schemas()) == []
        assert store.get_destination_metadata(A) is None
        assert store.get_all_destination_metadata() == {}

    # Schemas

    def test_a_schema_comes_back_as_it_was(self, store: PipelineStore) -> None:
        schema = example_schema(A, "more")
        store.store_table_schema(schema, Lsn(7))
        assert store.get_table_schema(A, Lsn(7)) == SchemaVersion(Lsn(7), schema)

    def test_what_the_destination_made_of_a_schema_comes_back_with_it(self, store: PipelineStore) -> None:
        schema, other = example_schema(A, "more"), example_schema(A, "kept", "more")
        target = Target(other, {column.attnum: column.attnum + 1 for column in other.columns[:-1]})
        store.store_table_schema(schema, Lsn(7), target)
        assert store.get_table_schema(A, Lsn(8)) == SchemaVersion(Lsn(7), schema, target)
        store.store_table_schema(schema, Lsn(7))
        assert list(store.get_table_schemas()) == [SchemaVersion(Lsn(7), schema)]

    @pytest.mark.parametrize(
        ("at", "found"),
        [(0, None), (9, None), (10, 10), (19, 10), (20, 20), (1 << 40, 20), (1 << 63, 1 << 63), (LAST_LSN, 1 << 63)],
    )
    def test_the_version_in_force_is_the_latest_not_above(
        self, store: PipelineStore, at: int, found: int | None
    ) -> None:
        for lsn in (20, 1 << 63, 10):
            store.store_table_schema(example_schema(A, f"c{lsn}"), Lsn(lsn))
        store.store_table_schema(example_schema(B), Lsn(1))
        version = store.get_table_schema(A, Lsn(at))
        assert (version and version.snapshot_lsn) == found
        assert version is None or version.schema == example_schema(A, f"c{found}")

    def test_storing_a_version_again_replaces_it(self, store: PipelineStore) -> None:
        store.store_table_schema(example_schema(A, "old", "older"), Lsn(5))
        store.store_table_schema(example_schema(A, "new"), Lsn(5))
        assert list(store.get_table_schemas()) == [SchemaVersion(Lsn(5), example_schema(A, "new"))]

    def test_all_versions_are_listed_by_table_and_lsn(self, store: PipelineStore) -> None:
        for table_id, lsn in ((B, 1), (A, 1 << 33), (A, 2)):
            store.store_table_schema(example_schema(table_id), Lsn(lsn))
        listed = [(version.table_id, version.snapshot_lsn) for version in store.get_table_schemas()]
        assert listed == [(A, 2), (A, 1 << 33), (B, 1)]

    def test_pruning_keeps_what_is_needed(self, store: PipelineStore) -> None:
        for table_id in (A, B):
            for lsn in (10, 20, 30, 40):
                store.store_table_schema(example_schema(table_id), Lsn(lsn))
        assert store.prune_table_schemas({A: Lsn(35), 999: Lsn(35)}) == 2
        kept = [(version.table_id, int(version.snapshot_lsn)) for version in store.get_table_schemas()]
        assert kept == [(A, 30), (A, 40), (B, 10), (B, 20), (B, 30), (B, 40)]
        assert store.prune_table_schemas({A: Lsn(35), B: Lsn(9)}) == 0
        assert store.prune_table_schemas({B: Lsn(40)}) == 3

    # States

    def test_a_table_goes_its_way(self, store: PipelineStore) -> None:
        started = datetime.now(UTC)
        for state in TO_READY:
            store.update_table_states({A: state})
            assert store.get_table_state(A) == state
        entries = store.get_table_state_history(A)
        assert [entry.state for entry in entries] == list(TO_READY)
        times = [entry.entered_at for entry in entries]
        assert all(earlier <= later for earlier, later in pairwise(times))
        # A second of leeway: the store's clock may be another machine's.
        assert started - timedelta(seconds=1) <= times[0]
        assert times[-1] <= datetime.now(UTC) + timedelta(seconds=1)

    @pytest.mark.parametrize("policy", list(RetryPolicy))
    def test_an_errored_state_keeps_its_reason(self, store: PipelineStore, policy: RetryPolicy) -> None:
        reason, solution = "línea 1\n\0'\"\\ \ud800", None if policy is RetryPolicy.NONE else ""
        errored = TableState(State.ERRORED, reason=reason, solution=solution, retry_policy=policy)
        follow(store, A, INIT, errored)
        assert store.get_table_state(A) == errored

    def test_an_illegal_move_changes_nothing(self, store: PipelineStore) -> None:
        follow(store, A, INIT, DATA_SYNC)
        for illegal in (READY, SYNC_DONE):
            with pytest.raises(IllegalTransition):
                store.update_table_states({A: illegal})
        with pytest.raises(IllegalTransition):
            store.update_table_states({B: DATA_SYNC})
        assert history(store, A) == [INIT, DATA_SYNC]
        assert store.get_table_states() == {A: DATA_SYNC}

    def test_states_that_live_in_memory_are_refused(self, store: PipelineStore) -> None:
        follow(store, A, INIT, DATA_SYNC, FINISHED_COPY)
        for state in (TableState(State.SYNC_WAIT), TableState(State.CATCHUP, lsn=Lsn(1))):
            with pytest.raises(ValueError, match="memory"):
                store.update_table_states({A: state})
        assert store.get_table_state(A) == FINISHED_COPY

    def test_an_errored_table_may_fail_again_or_come_back(self, store: PipelineStore) -> None:
        again = TableState(State.ERRORED, reason="still full", retry_policy=RetryPolicy.MANUAL)
        follow(store, A, *TO_READY, ERRORED, again, SYNC_DONE, READY)
        assert history(store, A)[-4:] == [ERRORED, again, SYNC_DONE, READY]

    def test_many_tables_move_together_or_not_at_all(self, store: PipelineStore) -> None:
        store.update_table_states({A: INIT, B: INIT})
        with pytest.raises(IllegalTransition):
            store.update_table_states({A: DATA_SYNC, B: READY})
        assert store.get_table_states() == {A: INIT, B: INIT}
        store.update_table_states({A: DATA_SYNC, B: ERRORED})
        assert store.get_table_states() == {A: DATA_SYNC, B: ERRORED}

    def test_moving_to_the_same_state_is_no_move(self, store: PipelineStore) -> None:
        for state in TO_READY:
            follow(store, A, state, state)
        assert history(store, A) == list(TO_READY)

    def test_rollback_takes_one_step_back(self, store: PipelineStore) -> None:
        follow(store, A, *TO_READY, ERRORED)
        assert store.rollback_table_state(A) == READY
        assert store.rollback_table_state(A) == SYNC_DONE
        assert history(store, A) == [INIT, DATA_SYNC, FINISHED_COPY, SYNC_DONE]
        follow(store, A, READY)
        assert history(store, A) == list(TO_READY)

    def test_rollback_does_not_cross_init(self, store: PipelineStore) -> None:
        follow(store, A, *TO_READY, INIT)
        with pytest.raises(RollbackImpossible):
            store.rollback_table_state(A)
        with pytest.raises(RollbackImpossible):
            store.rollback_table_state(B)
        assert history(store, A) == [*TO_READY, INIT]

    def test_rollback_to_init(self, store: PipelineStore) -> None:
        fill(store, A)
        store.rollback_table_state_to_init(A)
        store.rollback_table_state_to_init(A)
        assert history(store, A) == [*TO_READY, INIT]
        assert store.get_progress(Worker(A)) == Lsn(100)
        with pytest.raises(RollbackImpossible):
            store.rollback_table_state_to_init(B)
        assert store.get_table_state(B) is None

    def test_a_long_history_keeps_its_end(self, store: PipelineStore) -> None:
        failures = [
            TableState(State.ERRORED, reason=f"failure {i}", retry_policy=RetryPolicy.TIMED)
            for i in range(HISTORY_KEPT + 20)
        ]
        follow(store, A, INIT, *failures)
        assert history(store, A)[-HISTORY_KEPT:] == failures[-HISTORY_KEPT:]
        assert store.rollback_table_state(A) == failures[-2]

    # Progress

    def test_progress_only_moves_forward(self, store: PipelineStore) -> None:
        given = (5, 0x9_FFFF_FFFF, 0xA_0000_0000, 7, 0, 1 << 63, 0xB_0000_0000)
        stored = [store.update_progress(APPLY, Lsn(lsn)) for lsn in given]
        assert stored == [5, 0x9_FFFF_FFFF, 0xA_0000_0000, 0xA_0000_0000, 0xA_0000_0000, 1 << 63, 1 << 63]
        assert store.get_progress(APPLY) == 1 << 63
        assert isinstance(stored[0], Lsn)

    def test_workers_have_progress_of_their_own(self, store: PipelineStore) -> None:
        for worker, lsn in ((APPLY, 30), (Worker(A), 10), (Worker(B), 0)):
            store.update_progress(worker, Lsn(lsn))
        assert store.get_all_progress() == {APPLY: 30, Worker(A): 10, Worker(B): 0}
        assert store.get_progress(Worker(B)) == Lsn(0)

    def test_what_was_acknowledged_is_replaced_and_forgotten_with_its_copy(self, store: PipelineStore) -> None:
        assert store.get_acknowledged() == {}
        store.acknowledge({A: Lsn(30), B: Lsn(40)})
        store.acknowledge({A: Lsn(10)})
        assert store.get_acknowledged() == {A: 10, B: 40}
        store.prepare_for_copy(A)
        assert store.get_acknowledged() == {B: 40}
        store.delete_table(B)
        assert store.get_acknowledged() == {}

    def test_deleted_progress_may_start_lower(self, store: PipelineStore) -> None:
        store.update_progress(APPLY, Lsn(30))
        store.update_progress(Worker(A), Lsn(30))
        store.delete_progress(APPLY)
        store.delete_progress(APPLY)
        assert store.get_all_progress() == {Worker(A): 30}
        assert store.update_progress(APPLY, Lsn(3)) == 3
        store.update_progress(Worker(B), Lsn(30))
        store.delete_progress(Worker(A), Worker(B))
        assert store.get_all_progress() == {APPLY: 3}

    # Destination metadata

    def test_metadata_goes_from_applying_to_applied(self, store: PipelineStore) -> None:
        creating = DestinationTableMetadata('lake."T"', Lsn(10), ReplicationMask(frozenset({1, 2})))
        store.store_destination_metadata(A, creating)
        assert store.get_destination_metadata(A) == creating
        store.store_destination_metadata(A, creating.applied())
        assert store.get_destination_metadata(A) == creating.applied()
        altering = creating.applied().applying(Lsn(20), ReplicationMask(frozenset({1, 1600})))
        assert (altering.previous_snapshot_lsn, altering.status) == (Lsn(10), SchemaStatus.APPLYING)
        # Cut short by a crash, and planned again: the destination may still be where it was before.
        again = altering.applying(Lsn(30), altering.mask)
        assert (again.snapshot_lsn, again.previous_snapshot_lsn) == (Lsn(30), Lsn(10))
        store.store_destination_metadata(A, altering)
        store.store_destination_metadata(B, creating)
        assert store.get_all_destination_metadata() == {A: altering, B: creating}
        assert (store.get_destination_metadata(A), store.get_destination_metadata(B)) == (altering, creating)
        assert store.get_destination_metadata(1) is None

    @pytest.mark.parametrize("attnums", [(), (1,), (3, 2, 1600), tuple(range(1, 1601))])
    def test_masks_come_back_as_they_were(self, store: PipelineStore, attnums: tuple[int, ...]) -> None:
        mask = ReplicationMask(frozenset(attnums))
        store.store_destination_metadata(A, DestinationTableMetadata("t", LAST_LSN, mask))
        assert store.get_destination_metadata(A) == DestinationTableMetadata("t", LAST_LSN, mask)

    # Lifecycle

    def test_the_last_heartbeat_is_kept(self, opened: OpenStore) -> None:
        store, other = opened(1), opened(2)
        assert store.get_heartbeat() is None
        first = Heartbeat(datetime.now(UTC), "host-1", 4711, "running", "streaming", 0.25, Lsn(0x1_0000_0010))
        last = Heartbeat(
            first.written_at + timedelta(seconds=5),
            "host-1",
            4711,
            "stopped",
            "paused",
            61.5,
            LAST_LSN,
            "ä 'x'",
            "do y",
        )
        store.store_heartbeat(first)
        assert store.get_heartbeat() == first
        store.store_heartbeat(last)
        assert opened(1).get_heartbeat() == last
        assert other.get_heartbeat() is None

    def test_the_first_system_identifier_of_an_upgraded_cluster_is_kept(self, opened: OpenStore) -> None:
        store, other = opened(1), opened(2)
        assert store.get_first_system_id("7302") is None
        for first in ("7300", "7301"):
            store.store_first_system_id("7302", first)
        store.store_first_system_id("7303", "7301")
        store.reset_for_resync()
        assert [opened(1).get_first_system_id(known) for known in ("7301", "7302", "7303")] == [None, "7301", "7301"]
        assert other.get_first_system_id("7302") is None

    def test_prepare_for_copy_keeps_the_state_and_the_name(self, store: PipelineStore) -> None:
        for table_id in (A, B):
            fill(store, table_id)
        store.update_progress(APPLY, Lsn(500))
        for _ in range(2):
            store.prepare_for_copy(A)
        assert history(store, A) == list(TO_READY)
        assert [version.table_id for version in store.get_table_schemas()] == [B]
        assert store.get_all_destination_metadata().keys() == {A, B}
        assert store.get_all_progress() == {APPLY: 500, Worker(B): 100}

    def test_reset_for_resync_moves_tables_and_forgets_the_progress_of_apply(self, store: PipelineStore) -> None:
        fill(store, A)
        follow(store, B, INIT)
        store.update_progress(APPLY, Lsn(500))
        assert store.reset_for_resync() == 1
        assert store.get_table_states() == {A: INIT, B: INIT}
        assert store.get_all_progress() == {Worker(A): 100}
        assert store.get_table_schema(A, Lsn(100)) is not None
        assert store.get_destination_metadata(A) is not None
        assert store.reset_for_resync() == 0

    def test_delete_forgets_one_table_whole(self, store: PipelineStore) -> None:
        for table_id in (A, B):
            fill(store, table_id)
        store.update_progress(APPLY, Lsn(500))
        for _ in range(2):
            store.delete_table(A)
        assert store.get_table_states() == {B: READY}
        assert history(store, A) == []
        assert [version.table_id for version in store.get_table_schemas()] == [B]
        assert store.get_all_destination_metadata().keys() == {B}
        assert store.get_all_progress() == {APPLY: 500, Worker(B): 100}
        follow(store, A, INIT)
        assert history(store, A) == [INIT]

    # The place

    def test_pipelines_do_not_see_each_other(self, opened: OpenStore) -> None:
        one, two = opened(1), opened(2)
        fill(one, A, 100)
        fill(two, A, 200)
        fill(two, B, 200)
        two.rollback_table_state(A)
        follow(two, A, ERRORED)
        one.update_progress(APPLY, Lsn(1))
        assert (one.get_table_states(), two.get_table_states()) == ({A: READY}, {A: ERRORED, B: READY})
        assert one.get_all_progress() == {APPLY: 1, Worker(A): 100}
        assert two.get_all_progress() == {Worker(A): 200, Worker(B): 200}
        assert [version.snapshot_lsn for version in one.get_table_schemas()] == [100]
        assert (one.get_table_schema(B, LAST_LSN), one.get_destination_metadata(B)) == (None, None)
        assert one.get_all_destination_metadata().keys() == {A}

    def test_pipelines_do_not_touch_each_other(self, opened: OpenStore) -> None:
        one, two = opened(1), opened(2)
        fill(one, A, 100)
        fill(two, A, 200)
        two.update_progress(APPLY, Lsn(2))
        assert one.prune_table_schemas({A: LAST_LSN}) == 0
        assert one.reset_for_resync() == 1
        one.delete_progress(APPLY)
        one.prepare_for_copy(A)
        one.delete_table(A)
        assert history(two, A) == list(TO_READY)
        assert [version.snapshot_lsn for version in two.get_table_schemas()] == [200]
        assert two.get_all_destination_metadata().keys() == {A}
        assert two.get_all_progress() == {APPLY: 2, Worker(A): 200}

    def test_another_instance_sees_everything(self, open_store: OpenStore, opened: OpenStore) -> None:
        def everything(store: PipelineStore) -> list[object]:
            schemas, metadata = store.get_table_schemas(), store.get_all_destination_metadata()
            return [store.get_table_state_history(A), schemas, metadata, store.get_all_progress()]

        first = open_store(7)
        fill(first, A)
        seen = everything(first)
        first.close()
        first.close()
        assert everything(opened(7)) == seen
        assert seen[-1] == {Worker(A): 100}

    def test_threads_may_write_at_once(self, store: PipelineStore) -> None:
        def work(table_id: int) -> Lsn:
            fill(store, table_id)
            return max(store.update_progress(APPLY, Lsn(lsn)) for lsn in range(table_id, 400, 8))

        tables = range(1, 9)
        with ThreadPoolExecutor(8) as pool:
            reached = list(pool.map(work, tables))
        assert max(reached) == store.get_progress(APPLY) == 399
        assert store.get_table_states() == dict.fromkeys(tables, READY)
        assert [history(store, table_id) for table_id in tables] == [list(TO_READY)] * 8

    def test_of_two_instances_one_makes_the_move(self, opened: OpenStore) -> None:
        stores = [opened(1), opened(1)]
        follow(stores[0], A, INIT)
        failures = [TableState(State.ERRORED, reason=f"{i}", retry_policy=RetryPolicy.TIMED) for i in range(40)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda store, states: follow(store, A, *states), stores, (failures[:20], failures[20:])))
        told = history(stores[0], A)
        assert told[0] == INIT
        assert sorted(told[1:], key=lambda state: int(state.reason or 0)) == failures
        assert [s for s in told if s in failures[:20]] == failures[:20]
