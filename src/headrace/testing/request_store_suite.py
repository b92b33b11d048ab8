"""The conformance suite of stores, third part: what `headrace.stores.requests` promises. A store runs all three:

    class TestMyStore(StoreSuite, CopyStoreSuite, RequestStoreSuite):

with the fixture that `store_suite` asks for.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ..stores.contract import PipelineStore
from ..stores.requests import RequestKind, TableRequest
from .opened_stores import OpenedStores, OpenStore
from .store_suite import A, B, fill

__all__ = ["RequestStoreSuite"]

RESYNC, ROLLBACK = TableRequest(RequestKind.RESYNC, A), TableRequest(RequestKind.ROLLBACK, A)
TO_INIT = TableRequest(RequestKind.ROLLBACK_TO_INIT, B)


class RequestStoreSuite(OpenedStores):
    """Subclass it with an `open_store` fixture; every test starts with an empty place."""

    def test_nothing_is_asked_of_a_new_store(self, store: PipelineStore) -> None:
        assert list(store.get_requests()) == []

    def test_requests_come_back_by_table_until_withdrawn(self, store: PipelineStore) -> None:
        for request in sorted((TO_INIT, RESYNC), key=lambda request: -request.table_id):
            store.ask(request)
        both = sorted((TO_INIT, RESYNC), key=lambda request: request.table_id)
        assert list(store.get_requests()) == list(store.get_requests()) == both
        assert store.withdraw_request(RESYNC) is True
        assert list(store.get_requests()) == [TO_INIT]

    def test_the_latest_request_of_a_table_counts(self, store: PipelineStore) -> None:
        for request in (ROLLBACK, RESYNC, RESYNC):
            store.ask(request)
        assert list(store.get_requests()) == [RESYNC]
        assert isinstance(store.get_requests()[0].kind, RequestKind)

    def test_a_request_that_another_replaced_is_not_withdrawn_with_it(self, store: PipelineStore) -> None:
        store.ask(ROLLBACK)
        store.ask(RESYNC)
        assert store.withdraw_request(ROLLBACK) is False
        assert list(store.get_requests()) == [RESYNC]

    def test_withdrawing_twice_is_no_error(self, store: PipelineStore) -> None:
        store.ask(RESYNC)
        assert [store.withdraw_request(RESYNC), store.withdraw_request(RESYNC)] == [True, False]

    def test_a_table_that_was_deleted_has_no_request(self, store: PipelineStore) -> None:
        fill(store, A)
        store.ask(RESYNC)
        store.ask(TO_INIT)
        store.delete_table(A)
        assert list(store.get_requests()) == [TO_INIT]

    def test_starting_over_keeps_requests(self, store: PipelineStore) -> None:
        fill(store, A)
        store.ask(RESYNC)
        store.rollback_table_state_to_init(A)
        store.prepare_for_copy(A)
        store.reset_for_resync()
        assert list(store.get_requests()) == [RESYNC]

    def test_pipelines_have_requests_of_their_own(self, opened: OpenStore) -> None:
        one, two = opened(1), opened(2)
        one.ask(RESYNC)
        assert list(two.get_requests()) == []
        two.ask(RESYNC)
        two.withdraw_request(RESYNC)
        two.delete_table(A)
        assert list(one.get_requests()) == [RESYNC]

    def test_another_instance_sees_and_withdraws(self, opened: OpenStore) -> None:
        operator, pipeline = opened(1), opened(1)
        operator.ask(RESYNC)
        assert list(pipeline.get_requests()) == [RESYNC]
        assert pipeline.withdraw_request(RESYNC) is True
        assert list(operator.get_requests()) == []

    def test_of_many_who_withdraw_at_once_one_does(self, opened: OpenStore) -> None:
        stores = [opened(1), opened(1)]
        stores[0].ask(RESYNC)
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda i: stores[i % 2].withdraw_request(RESYNC), range(8)))
        assert done.count(True) == 1
