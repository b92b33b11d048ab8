"""All built-in stores keep the promises of the contract."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.postgres.connection import connect, parse_conninfo
from headrace.schema import OWN_SCHEMA
from headrace.stores import MemoryStore, PipelineStore, PostgresStore, SqliteStore
from headrace.testing import PostgresServer
from headrace.testing.copy_store_suite import CopyStoreSuite
from headrace.testing.request_store_suite import RequestStoreSuite
from headrace.testing.store_suite import OpenStore, StoreSuite


class TestMemoryStore(StoreSuite, CopyStoreSuite, RequestStoreSuite):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        stores: defaultdict[int, MemoryStore] = defaultdict(MemoryStore)
        return stores.__getitem__


class TestSqliteStore(StoreSuite, CopyStoreSuite, RequestStoreSuite):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda pipeline_id: SqliteStore(tmp_path / "store.db", pipeline_id)


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Iterator[str]:
    """One for all tests: a database takes longer to make than most of them run."""
    with postgres.database() as info:
        yield info


@pytest.mark.matrix
class TestPostgresStore(StoreSuite, CopyStoreSuite, RequestStoreSuite):
    @pytest.fixture
    def open_store(self, database: str) -> Iterator[OpenStore]:
        source = parse_conninfo(database)

        def open_store(pipeline_id: int) -> PipelineStore:
            return PostgresStore(lambda: connect(source, "store", pipeline=pipeline_id), pipeline_id)

        yield open_store
        with psycopg.connect(database, autocommit=True) as connection:
            # A test that failed may have left a lock; the next one starts with nothing.
            connection.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            connection.execute(f"DROP SCHEMA IF EXISTS {OWN_SCHEMA} CASCADE")


def test_the_test_kit_does_without_pytest() -> None:
    script = "import sys, headrace.testing; print('pytest' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
