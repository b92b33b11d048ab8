"""`headrace resync` and `headrace rollback`: from another process, to a pipeline that runs or does not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from commanding import invoke, write_config
from failing import Failures
from headrace.config.load import load_pipeline_config
from headrace.config.pipeline import PipelineConfig
from headrace.destinations import NullDestination
from headrace.errors import DestinationRejected, RetryPolicy
from headrace.pipeline.build import build_store
from headrace.stores import PipelineStore, RequestKind, SqliteStore
from headrace.table_state import State, TableState
from headrace.testing.faulty_destination import FaultyDestination
from headrace.testing.postgres import PASSWORD
from pipelining import piped

Connection = psycopg.Connection[Any]


@pytest.fixture
def file(conninfo: str, connection: Connection, tmp_path: Path) -> Path:
    for name in ("orders", "customers"):
        connection.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text)")
        connection.execute(f"INSERT INTO {name} (note) SELECT 'n' FROM generate_series(1, 10)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE orders, customers")
    return write_config(tmp_path / "pipeline.yaml", conninfo, batch={"max_fill_ms": 50}, spool={"segment_age_ms": 20})


def configured(file: Path) -> PipelineConfig:
    return load_pipeline_config(file, {"HEADRACE__PG_CONNECTION__PASSWORD": PASSWORD})


@pytest.fixture
def known(file: Path, connection: Connection) -> PipelineStore:
    """The store of a pipeline that ran before: both tables have a state."""
    config = configured(file)
    config.store_path.parent.mkdir(parents=True)
    store = SqliteStore(config.store_path, 1)
    store.update_table_states(dict.fromkeys(oids(connection).values(), TableState(State.INIT)))
    return store


def oids(connection: Connection) -> dict[str, int]:
    rows = connection.execute("SELECT relname, oid::int8 FROM pg_class WHERE relname IN ('orders', 'customers')")
    return dict(rows.fetchall())


def test_a_running_pipeline_copies_again_and_tries_again(file: Path, connection: Connection, spark: Any) -> None:
    config, failures = configured(file), Failures()
    store = build_store(config)
    with piped(config, store, FaultyDestination(NullDestination(), failures), spark) as running:
        running.until_ready(timeout=240)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(invoke, "resync", file, "orders", "--wait")
            running.until(asked.done)
        assert asked.result().exit_code == 0, asked.result().stderr
        assert "asked pipeline 1 to copy public.orders again: it runs" in asked.result().stdout
        running.until_ready("public.orders")
        # When a table fails and its cause is mended
        failures.begin("write_events", "public.orders", lambda: DestinationRejected("no such type"))
        connection.execute("INSERT INTO orders (note) VALUES ('rejected')")
        running.until(lambda: running.states()["public.orders"] is State.ERRORED)
        failures.end("write_events", "public.orders")
        assert invoke("rollback", file, "public.orders").exit_code == 0
        running.until_ready(timeout=240)
    history = [entry.state.state for entry in store.get_table_state_history(oids(connection)["orders"])]
    assert history.count(State.INIT) == 2
    assert not store.get_requests()


def test_asked_of_a_pipeline_that_does_not_run(file: Path, connection: Connection, known: PipelineStore) -> None:
    result = invoke("resync", file, "public.orders", "customers", "orders")
    assert result.exit_code == 0, result.stderr
    assert "asked pipeline 1 to copy public.orders, public.customers again: it does not run" in result.stdout
    wanted = {(RequestKind.RESYNC, table_id) for table_id in oids(connection).values()}
    assert {(request.kind, request.table_id) for request in known.get_requests()} == wanted
    result = invoke("rollback", file, "orders", "--to-init")
    assert "to start public.orders over: it does not run" in result.stdout
    kinds = {request.table_id: request.kind for request in known.get_requests()}
    assert kinds[oids(connection)["orders"]] is RequestKind.ROLLBACK_TO_INIT


def test_the_source_need_not_be_there_for_a_table_that_was_copied(file: Path, known: PipelineStore) -> None:
    result = invoke("resync", file, "orders", HEADRACE__PG_CONNECTION__PORT="1")
    assert result.exit_code == 2  # in Init it has no name but at the source
    assert "no table orders is known to this pipeline" in result.stderr
    assert "the source, which may know it, cannot be asked: cannot connect to Postgres" in result.stderr
    assert "what to do check that the server runs" in result.stderr
    from headrace.lsn import Lsn
    from headrace.testing.store_suite import example_schema

    (table_id, *_) = known.get_table_states()
    known.store_table_schema(example_schema(table_id), Lsn(1))
    result = invoke("resync", file, "Orders 2", HEADRACE__PG_CONNECTION__PORT="1")
    assert result.exit_code == 0
    assert "whether it runs is not known" in result.stdout


@pytest.mark.parametrize("command", [("resync", "oders"), ("rollback", "oders"), ("resync", "orders", "oders")])
def test_a_table_that_is_not_there_is_wrong_usage(file: Path, known: PipelineStore, command: tuple[str, ...]) -> None:
    name, *tables = command
    result = invoke(name, file, *tables)
    assert result.exit_code == 2
    assert "error no table oders in this pipeline" in result.stderr
    assert "did you mean public.orders?" in result.stderr
    assert not known.get_requests()


def test_a_table_that_has_not_failed_is_not_rolled_back(file: Path, known: PipelineStore) -> None:
    result = invoke("rollback", file, "orders")
    assert result.exit_code == 2
    assert "public.orders has not failed: it is in state init" in result.stderr
    assert not known.get_requests()


def test_without_a_store_there_is_nothing_to_ask_of(file: Path) -> None:
    result = invoke("resync", file, "orders")
    assert result.exit_code == 2
    assert "has never run" in result.stderr
    assert "store.db" in result.stderr
    assert not (file.parent / "data").exists()
    # Nor while its pipeline's first start is about to make the tables.
    path = configured(file).store_path
    path.parent.mkdir(parents=True)
    path.touch()
    result = invoke("resync", file, "orders")
    assert result.exit_code == 2
    assert "has never run" in result.stderr
    assert invoke("status", file).exit_code == 0
    result = invoke("resync", file, "orders", HEADRACE__STORE__KIND="memory")
    assert result.exit_code == 2
    assert "in memory" in result.stderr


def test_a_store_database_that_cannot_be_reached_exits_3(file: Path) -> None:
    result = invoke("resync", file, "orders", HEADRACE__STORE__KIND="postgres", HEADRACE__PG_CONNECTION__PORT="1")
    assert result.exit_code == 3
    assert "cannot connect to the store's database" in result.stderr


def test_one_of_several_destinations_can_be_meant(conninfo: str, file: Path, connection: Connection) -> None:
    several = {"lake": {"kind": "null"}, "duck": {"kind": "null"}, "new": {"kind": "null"}}
    write_config(file, conninfo, destination=None, destinations=several)
    config, ids = configured(file), oids(connection)
    config.store_path.parent.mkdir(parents=True)
    stores = {name: build_store(config, name) for name in several}
    for name in ("lake", "duck"):
        stores[name].update_table_states(dict.fromkeys(ids.values(), TableState(State.INIT)))

    def asked() -> dict[str, list[tuple[RequestKind, int]]]:
        return {name: [(one.kind, one.table_id) for one in store.get_requests()] for name, store in stores.items()}

    result = invoke("resync", file, "orders", "--destination", "duck")
    assert result.exit_code == 0, result.stderr
    assert "asked pipeline 1 to copy public.orders again at duck: it does not run" in result.stdout
    assert asked() == {"lake": [], "duck": [(RequestKind.RESYNC, ids["orders"])], "new": []}
    # Without a name, all that have the table
    assert invoke("resync", file, "customers").exit_code == 0
    assert asked()["lake"] == [(RequestKind.RESYNC, ids["customers"])]
    assert (RequestKind.RESYNC, ids["customers"]) in asked()["duck"]
    assert asked()["new"] == []
    # A rollback where it has failed
    failed = TableState(State.ERRORED, None, "no such type", "give it one", RetryPolicy.MANUAL)
    stores["lake"].update_table_states({ids["orders"]: failed})
    assert invoke("rollback", file, "orders").exit_code == 0
    assert (RequestKind.ROLLBACK, ids["orders"]) in asked()["lake"]
    assert (RequestKind.ROLLBACK, ids["orders"]) not in asked()["duck"]
    assert invoke("rollback", file, "orders", "--destination", "duck").exit_code == 2
    # And what there is not
    result = invoke("resync", file, "orders", "--destination", "lke")
    assert result.exit_code == 2
    assert "pipeline 1 has no destination called 'lke'" in result.stderr
    assert "it has duck, lake, new" in result.stderr
    result = invoke("status", file)
    assert result.exit_code == 1
    assert "public.orders failed at lake: no such type" in result.stdout
    assert invoke("status", file, "--destination", "duck").exit_code == 0
    for store in stores.values():
        store.close()
