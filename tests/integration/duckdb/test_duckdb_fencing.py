"""A claim that comes while a write is about to be committed: the write leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from psycopg.conninfo import conninfo_to_dict

from duckdb_reading import lake_settings, motherduck_in
from headrace.config.duckdb import DuckDBConfig, DuckLakeConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.duckdb import DuckDBDestination
from headrace.destinations.duckdb.database import Database
from headrace.destinations.duckdb.staging import Staging
from headrace.destinations.retrying import Retrying
from headrace.errors import DestinationConflict, DestinationFenced
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import ORDERS, VISITS
from headrace.testing.local_rows import Deleted, Inserted, Updated, batch_of, local_rows, transaction

Settings = DuckDBConfig | DuckLakeConfig


@pytest.fixture(params=["sqlite", "postgres", "postgres, rows in files"])
def settings(request: pytest.FixtureRequest, tmp_path: Path, conninfo: str) -> Settings:
    """Lakes, where of two transactions the one that commits later fails."""
    given: dict[str, Any] = {"data_inlining_row_limit": 0} if "files" in request.param else {}
    if request.param.startswith("postgres"):
        it = conninfo_to_dict(conninfo)
        uri = f"host={it['host']} port={it['port']} dbname={it['dbname']} user={it['user']}"
        given["catalog"] = {"type": "postgres", "uri": uri, "password": it.get("password")}
    return lake_settings(tmp_path, **given)


def opened(settings: Settings) -> DuckDBDestination:
    destination = DuckDBDestination(settings)
    destination.startup(DestinationContext(1, MemoryStore(), None))
    destination.claim()
    return destination


def row(key: int, name: str = "n") -> dict[str, object]:
    return {"id": key, "name": name, "note": None}


def names(destination: DuckDBDestination) -> list[tuple[int, str]]:
    opened = destination._opened
    with opened.database.look("read") as session:
        return sorted(session.rows(f"SELECT id, name FROM {opened.database.place.name}.public.orders"))


def changed(destination: DuckDBDestination | Retrying) -> None:
    changes = (Inserted(ORDERS, row(3)), Updated(ORDERS, row(1, "late")), Deleted(ORDERS, {"id": 2}))
    destination.write_events(batch_of(transaction(Lsn(300), *changes), end=Lsn(400)))


WRITES: dict[str, Callable[[DuckDBDestination | Retrying], Any]] = {
    "batch": changed,
    "append": lambda d: d.write_events(batch_of(transaction(Lsn(300), Inserted(ORDERS, row(3))), end=Lsn(400))),
    "first batch of a table": lambda d: d.write_events(
        batch_of(transaction(Lsn(300), Inserted(VISITS, {"page": "p", "seconds": 1})), end=Lsn(400))
    ),
    "copy": lambda d: d.write_table_rows(ORDERS, local_rows(ORDERS, [row(9)]), 1),
    "copy of a new table": lambda d: d.write_table_rows(VISITS, local_rows(VISITS, []), 0),
    "prepare a copy": lambda d: d.drop_table_for_copy(ORDERS),
    "drop": lambda d: d.drop_table(ORDERS),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_claim_right_before_a_commit(
    settings: Settings, write: Callable[[DuckDBDestination | Retrying], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(settings)
    first.write_table_rows(ORDERS, local_rows(ORDERS, [row(1), row(2)]), 0)
    first.write_events(batch_of(transaction(Lsn(100), Updated(ORDERS, row(2, "b"))), end=Lsn(200)))
    commit, successors = Database.commit, list[DuckDBDestination]()

    def late(connection: duckdb.DuckDBPyConnection) -> None:
        if not successors:
            successors.append(DuckDBDestination(settings))
            successors[0].startup(DestinationContext(1, MemoryStore(), None))
            successors[0].claim()
        commit(connection)

    monkeypatch.setattr(Database, "commit", staticmethod(late))
    # A copy is not tried again, so there it is the conflict that is raised.
    with pytest.raises((DestinationFenced, DestinationConflict)):
        write(Retrying(first, delay_s=0.01))
    with pytest.raises(DestinationFenced):
        write(first)
    second = successors[0]
    assert names(second) == [(1, "n"), (2, "b")]
    assert second.applied_lsn(ORDERS) == Lsn(200)
    assert second.copied_parts(ORDERS) == {0}
    assert second.applied_lsn(VISITS) is None
    assert second.copied_parts(VISITS) == frozenset()
    changed(second)
    assert names(second) == [(1, "late"), (3, "n")]
    for destination in (first, second):
        destination.shutdown()


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_claim_while_a_write_of_duckdb_itself_is_open(
    tmp_path: Path, write: Callable[[DuckDBDestination | Retrying], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the transaction that changes a row later fails at once: the claim, which is tried again after the write."""
    motherduck_in(tmp_path, "any", monkeypatch)
    settings = DuckDBConfig.model_validate({"database": "md:shop", "token": "any"})
    first, second = opened(settings), DuckDBDestination(settings)
    first.write_table_rows(ORDERS, local_rows(ORDERS, [row(1), row(2)]), 0)
    second.startup(DestinationContext(1, MemoryStore(), None))
    commit, conflicts = Database.commit, list[DestinationConflict]()

    def claimed_meanwhile(connection: duckdb.DuckDBPyConnection) -> None:
        if not conflicts:
            with pytest.raises(DestinationConflict) as caught:
                second.claim()
            conflicts.append(caught.value)
        commit(connection)

    monkeypatch.setattr(Database, "commit", staticmethod(claimed_meanwhile))
    write(first)
    assert conflicts
    second.claim()
    with pytest.raises(DestinationFenced):
        first.write_table_rows(ORDERS, local_rows(ORDERS, [row(10)]), 7)
    for table in (ORDERS, VISITS):
        assert second.applied_lsn(table) == first.applied_lsn(table)
        assert second.copied_parts(table) == first.copied_parts(table)
    for destination in (first, second):
        destination.shutdown()


def test_the_staging_directory_of_a_live_run_stays(tmp_path: Path) -> None:
    live, dead, next_one = (Staging(str(tmp_path), "place", 1, shared=True) for _ in range(3))
    live.open()
    Path(dead.path).mkdir()
    next_one.open()
    assert Path(live.path).exists()
    assert not Path(dead.path).exists()
    live.close()
    next_one.close()
    assert not list(tmp_path.iterdir())
