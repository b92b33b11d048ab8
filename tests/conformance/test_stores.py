"""All built-in stores keep the promises of the contract."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from headrace.postgres.connection import connect, parse_conninfo
from headrace.stores import MemoryStore, PipelineStore, PostgresStore, SqliteStore
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


@pytest.mark.matrix
class TestPostgresStore(StoreSuite, CopyStoreSuite, RequestStoreSuite):
    @pytest.fixture
    def open_store(self, conninfo: str) -> OpenStore:
        source = parse_conninfo(conninfo)

        def open_store(pipeline_id: int) -> PipelineStore:
            return PostgresStore(lambda: connect(source, "store", pipeline=pipeline_id), pipeline_id)

        return open_store


def test_the_test_kit_does_without_pytest() -> None:
    script = "import sys, headrace.testing; print('pytest' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
