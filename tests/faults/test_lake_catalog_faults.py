"""A DuckLake whose catalog in Postgres is lost around a commit: each change is there once, and the work continues."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from duckdb_reading import LakeReader, duckdb_with_lake, lake_settings
from headrace.destinations.contract import DestinationContext
from headrace.destinations.duckdb import DuckDBDestination
from headrace.errors import DestinationError
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table
from headrace.testing.local_rows import (
    Altered,
    Deleted,
    Happening,
    Inserted,
    Truncated,
    Updated,
    batch_of,
    local_rows,
    transaction,
)
from headrace.testing.proxy import Loss, TcpProxy
from headrace.testing.s3 import S3Server

pytestmark = pytest.mark.faults

ORDERS = example_table(1, "orders", {"id": "int8", "note": "text"}, ("id",))
COUNTED = example_table(1, "orders", {"id": "int8", "note": "text", "n": "int4"}, ("id",))
COPIED: dict[int, tuple[str, int | None]] = dict.fromkeys(range(1, 21), ("copied", None))

Rows = dict[int, tuple[str, int | None]]
Work = Callable[["LakeTable"], None]


class LakeTable:
    """A lake with one table, whose catalog is reached through a proxy and read without it."""

    def __init__(self, conninfo: str, port: int, root: Path, storage: Mapping[str, Any]) -> None:
        it = conninfo_to_dict(conninfo)
        uri = "host={host} port={port} dbname={dbname} user={user}"
        catalog = {"type": "postgres", "uri": uri.format(**{**it, "port": port}), "password": it["password"]}
        often = {"interval_s": 3600, "snapshot_age_s": 0, "retention_s": 3600}
        settings = {"catalog": catalog, "data_inlining_row_limit": 0, "maintenance": often, **storage}
        self._reader = LakeReader(f"postgres:{uri.format(**it)} password={it['password']}", "")
        self.destination = DuckDBDestination(lake_settings(root, **settings))
        self.destination.startup(DestinationContext(1, MemoryStore(), None))
        self.destination.claim()
        # Two files, so that there is something to merge.
        for part in (0, 2):
            self.copy(part, {key: value for key, value in COPIED.items() if key % 4 == part or key % 4 == part + 1})
        self._end = 100

    def copy(self, part: int, rows: Rows) -> None:
        given = [{"id": key, "note": note} for key, (note, _) in rows.items()]
        self.destination.write_table_rows(ORDERS, local_rows(ORDERS, given), part)

    def stream(self, *happened: Happening) -> None:
        batch = batch_of(transaction(Lsn(self._end), *happened), end=Lsn(self._end + 50), start=Lsn(0))
        self.destination.write_events(batch)

    def next(self) -> None:
        self._end += 100

    def rows(self) -> Rows:
        found = self._reader.rows("public.orders")
        keyed = {row["id"]: (row["note"], row.get("n")) for row in found}
        assert len(keyed) == len(found), "a row is there twice"
        return keyed


def _append(table: LakeTable) -> None:
    table.stream(Inserted(ORDERS, {"id": 100, "note": "new"}))


def _merge(table: LakeTable) -> None:
    table.stream(Updated(ORDERS, {"id": 1, "note": "changed"}), Deleted(ORDERS, {"id": 2}))


def _truncate(table: LakeTable) -> None:
    table.stream(Truncated((ORDERS,)), Inserted(ORDERS, {"id": 9, "note": "only"}))


def _alter(table: LakeTable) -> None:
    table.stream(Altered(ORDERS, COUNTED), Inserted(COUNTED, {"id": 7000, "note": "counted", "n": 7}))


def _copy(table: LakeTable) -> None:
    if 1 not in (table.destination.copied_parts(ORDERS) or ()):
        table.copy(1, {50: ("more", None)})


def _maintenance(table: LakeTable) -> None:
    table.destination.maintain()


OPERATIONS: dict[str, tuple[Work, Rows]] = {
    "append": (_append, {**COPIED, 100: ("new", None)}),
    "merge": (_merge, {key: value for key, value in {**COPIED, 1: ("changed", None)}.items() if key != 2}),
    "truncate": (_truncate, {9: ("only", None)}),
    "alter": (_alter, {**COPIED, 7000: ("counted", 7)}),
    "copy": (_copy, {**COPIED, 50: ("more", None)}),
    "maintenance": (_maintenance, COPIED),
}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def s3_storage(s3: S3Server, prefix: str) -> dict[str, Any]:
    """Make the settings of data on S3, and a secret of the same keys for those who read without Headrace."""
    storage = {"endpoint": f"127.0.0.1:{s3.port}", "url_style": "path", "use_ssl": "false", "region": "us-east-1"}
    secrets = {"key_id": s3.access_key, "secret": s3.secret_key}
    given = ", ".join(f"{name} '{value}'" for name, value in {**storage, **secrets}.items())
    duckdb_with_lake().execute(f"CREATE OR REPLACE SECRET lake_reader (TYPE s3, {given})")
    return {"data_path": f"s3://{s3.bucket}/{prefix}", "storage": storage, "secrets": secrets}


def lose_around_commit(operation: str, loss: Loss, conninfo: str, root: Path, storage: Mapping[str, Any]) -> None:
    work, expected = OPERATIONS[operation]
    with TcpProxy(int(conninfo_to_dict(conninfo)["port"] or 0)) as proxy:
        table = LakeTable(conninfo, proxy.port, root, storage)
        proxy.lose(loss, b"COMMIT")
        with contextlib.suppress(DestinationError):
            work(table)
        assert proxy.lost == 1, "no commit was sent"
        assert table.rows() in (COPIED, expected)
        proxy.heal()
        work(table)
        assert table.rows() == expected
        # The next batch is written as if nothing had happened.
        table.next()
        schema = COUNTED if operation == "alter" else ORDERS
        table.stream(Inserted(schema, {"id": 200, "note": "after"}))
        assert table.rows() == {**expected, 200: ("after", None)}
        table.destination.shutdown()


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize(
    "operation",
    [name if name == "append" else pytest.param(name, marks=pytest.mark.long) for name in OPERATIONS],
)
def test_the_catalog_is_lost_around_a_commit(operation: str, loss: Loss, conninfo: str, tmp_path: Path) -> None:
    lose_around_commit(operation, loss, conninfo, tmp_path, {"data_path": str(tmp_path / "data")})


@pytest.mark.long
@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_catalog_of_data_on_s3_is_lost_around_a_commit(
    operation: str, loss: Loss, conninfo: str, s3: S3Server, tmp_path: Path
) -> None:
    lose_around_commit(operation, loss, conninfo, tmp_path, s3_storage(s3, f"{operation}-{loss.name}"))
