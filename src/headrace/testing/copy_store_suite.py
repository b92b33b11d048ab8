"""The conformance suite of stores, second part: what `headrace.stores.copies` promises. A store runs all three:

    class TestMyStore(StoreSuite, CopyStoreSuite, RequestStoreSuite):

with the fixture that `store_suite` asks for.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ..errors import StoreError
from ..lsn import Lsn
from ..stores.contract import PipelineStore
from ..stores.records import CopyBounds, CopyRecord, CopyStart
from .opened_stores import OpenedStores, OpenStore
from .store_suite import LAST_LSN, A, B, fill

__all__ = ["CopyStoreSuite", "example_copy"]

BOUNDS = tuple(
    CopyBounds('I"d Ä\\', "timestamptz", lower, upper)
    for lower, upper in ((None, "-infinity"), ("-infinity", "2024-01-01 00:00:00+00"), ("2024-01-01 00:00:00+00", None))
)
WHOLE = CopyRecord(0, None, "10:10:", 1 << 40)


def example_copy(lsn: int = 100) -> CopyStart:
    """A copy by key ranges."""
    return CopyStart(Lsn(lsn), Lsn(lsn + 10), one_snapshot=False, ranges=BOUNDS)


def finished(position: int, rows: int = 5) -> CopyRecord:
    return CopyRecord(position, BOUNDS[position], f"{1 << 40}:{(1 << 40) + 9}:{1 << 40},{(1 << 40) + 2}", rows)


class CopyStoreSuite(OpenedStores):
    """Subclass it with an `open_store` fixture; every test starts with an empty place."""

    def test_no_copy_is_known_before_one_begins(self, store: PipelineStore) -> None:
        assert store.get_copy(A) is None
        fill(store, A)
        assert store.get_copy(A) is None

    @pytest.mark.parametrize(
        "start",
        [
            example_copy(),
            CopyStart(Lsn(0), Lsn(0), one_snapshot=True),
            CopyStart(Lsn(1 << 63), LAST_LSN, one_snapshot=True, ranges=()),
            CopyStart(Lsn(1), Lsn(2), one_snapshot=False, ranges=(CopyBounds("id", "int8"),)),
        ],
    )
    def test_a_copy_comes_back_as_it_began(self, store: PipelineStore, start: CopyStart) -> None:
        store.begin_copy(A, start)
        found = store.get_copy(A)
        assert found is not None
        assert (found[0], list(found[1])) == (start, [])
        assert isinstance(found[0].start_lsn, Lsn)
        assert isinstance(found[0].one_snapshot, bool)
        assert store.get_copy(B) is None

    def test_finished_ranges_come_back_by_position(self, store: PipelineStore) -> None:
        store.begin_copy(A, example_copy())
        for position in (2, 0):
            store.finish_copy_range(A, finished(position))
        assert copied(store, A) == [finished(0), finished(2)]
        store.begin_copy(B, CopyStart(Lsn(1), Lsn(2), one_snapshot=True))
        store.finish_copy_range(B, WHOLE)
        assert copied(store, B) == [WHOLE]

    def test_positions_are_ordered_as_numbers(self, store: PipelineStore) -> None:
        store.begin_copy(A, example_copy())
        for position in (10, 9, 100):
            store.finish_copy_range(A, replace(WHOLE, position=position))
        assert [record.position for record in copied(store, A)] == [9, 10, 100]

    def test_finishing_a_range_again_replaces_it(self, store: PipelineStore) -> None:
        store.begin_copy(A, example_copy())
        store.finish_copy_range(A, finished(1, rows=0))
        store.finish_copy_range(A, finished(1, rows=7))
        store.finish_copy_range(A, finished(1, rows=7))
        assert copied(store, A) == [finished(1, rows=7)]
        other = CopyRecord(1, None, "3:4:3", 8)
        store.finish_copy_range(A, other)
        assert copied(store, A) == [other]

    def test_beginning_again_forgets_the_copy_before(self, store: PipelineStore) -> None:
        for table_id in (A, B):
            store.begin_copy(table_id, example_copy())
            store.finish_copy_range(table_id, finished(0))
        store.raise_copy_lsn(A, LAST_LSN)
        again = CopyStart(Lsn(3), Lsn(4), one_snapshot=True)
        store.begin_copy(A, again)
        assert store.get_copy(A) == (again, [])
        assert store.get_copy(B) == (example_copy(), [finished(0)])

    def test_the_snapshot_lsn_only_moves_forward(self, store: PipelineStore) -> None:
        store.begin_copy(A, example_copy(0x9_FFFF_FFF0))
        store.begin_copy(B, example_copy())
        store.finish_copy_range(A, finished(0))
        given = (5, 0xA_0000_0000, 7, 1 << 63, 0xB_0000_0000)
        stored = [store.raise_copy_lsn(A, Lsn(lsn)) for lsn in given]
        assert stored == [0x9_FFFF_FFFA, 0xA_0000_0000, 0xA_0000_0000, 1 << 63, 1 << 63]
        assert isinstance(stored[0], Lsn)
        assert store.get_copy(A) == (replace(example_copy(0x9_FFFF_FFF0), snapshot_lsn=Lsn(1 << 63)), [finished(0)])
        assert store.get_copy(B) == (example_copy(), [])

    def test_a_copy_that_has_not_begun_takes_nothing(self, store: PipelineStore) -> None:
        store.begin_copy(B, example_copy())
        fill(store, A)
        with pytest.raises(StoreError, match=f"no copy of table {A} has begun"):
            store.finish_copy_range(A, finished(0))
        with pytest.raises(StoreError, match=f"no copy of table {A} has begun"):
            store.raise_copy_lsn(A, Lsn(5))
        assert store.get_copy(A) is None
        store.begin_copy(A, example_copy())
        assert store.get_copy(A) == (example_copy(), [])

    @pytest.mark.parametrize("forget", ["prepare_for_copy", "delete_table"])
    def test_what_starts_a_table_over_forgets_its_copy(self, store: PipelineStore, forget: str) -> None:
        for table_id in (A, B):
            fill(store, table_id)
            store.begin_copy(table_id, example_copy())
            store.finish_copy_range(table_id, finished(0))
        getattr(store, forget)(A)
        assert store.get_copy(A) is None
        assert store.get_copy(B) == (example_copy(), [finished(0)])
        store.begin_copy(A, example_copy())
        assert copied(store, A) == []

    def test_moving_states_keeps_the_copy(self, store: PipelineStore) -> None:
        fill(store, A)
        store.begin_copy(A, example_copy())
        store.finish_copy_range(A, finished(0))
        store.rollback_table_state(A)
        store.rollback_table_state_to_init(A)
        store.reset_for_resync()
        assert store.get_copy(A) == (example_copy(), [finished(0)])

    def test_pipelines_have_copies_of_their_own(self, opened: OpenStore) -> None:
        one, two = opened(1), opened(2)
        one.begin_copy(A, example_copy(100))
        one.finish_copy_range(A, finished(0))
        assert two.get_copy(A) is None
        two.begin_copy(A, example_copy(200))
        two.finish_copy_range(A, finished(1))
        two.raise_copy_lsn(A, Lsn(300))
        assert one.get_copy(A) == (example_copy(100), [finished(0)])
        one.prepare_for_copy(A)
        one.delete_table(A)
        assert two.get_copy(A) == (replace(example_copy(200), snapshot_lsn=Lsn(300)), [finished(1)])

    def test_another_instance_sees_the_copy(self, open_store: OpenStore, opened: OpenStore) -> None:
        first = open_store(7)
        first.begin_copy(A, example_copy())
        first.finish_copy_range(A, finished(2))
        first.close()
        assert opened(7).get_copy(A) == (example_copy(), [finished(2)])

    def test_ranges_may_finish_at_once(self, opened: OpenStore) -> None:
        stores = [opened(1), opened(1)]
        start = replace(example_copy(), ranges=(None,) * 40)
        stores[0].begin_copy(A, start)

        def work(position: int) -> None:
            store = stores[position % 2]
            store.raise_copy_lsn(A, Lsn(1000 + position))
            store.finish_copy_range(A, replace(WHOLE, position=position))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(40)))
        expected = [replace(WHOLE, position=position) for position in range(40)]
        assert stores[0].get_copy(A) == (replace(start, snapshot_lsn=Lsn(1039)), expected)


def copied(store: PipelineStore, table_id: int) -> list[CopyRecord]:
    found = store.get_copy(table_id)
    assert found is not None
    return list(found[1])
