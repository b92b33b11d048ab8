"""Tables without columns, at the start and for a while: nothing is lost, and no other table is concerned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.stores import MemoryStore
from headrace.table_state import State
from pipelining import piped, pipeline_config, wait_equal
from sites import KINDS, site

Connection = psycopg.Connection[Any]

SOURCE = """
CREATE TABLE other (id int PRIMARY KEY);
CREATE TABLE bare ();
INSERT INTO bare DEFAULT VALUES;
INSERT INTO bare DEFAULT VALUES;
CREATE TABLE lost (a int);
INSERT INTO lost VALUES (1);
CREATE PUBLICATION pub FOR TABLE other, bare, lost;
"""


CASES = [(kind, "auto") for kind in KINDS] + [("duckdb", "never"), ("iceberg", "never")]


@pytest.mark.parametrize(("kind", "install"), CASES)
def test_they_come_back_with_all_rows(
    kind: str, install: str, conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    connection.execute(SOURCE)
    where = site(kind, tmp_path)
    config = pipeline_config(conninfo, tmp_path, source={"install": install}, table_error_retry_max_attempts=1000)
    with piped(config, MemoryStore(), where.destination, spark) as running:
        running.until_ready("public.other", "public.lost")
        running.until(lambda: running.states()["public.bare"] is State.ERRORED)
        reason = running.status.tables["public.bare"].state.reason
        assert reason is not None
        assert "table public.bare is published: it has no columns" in reason
        connection.execute("ALTER TABLE lost DROP COLUMN a")
        connection.execute("INSERT INTO lost DEFAULT VALUES")
        connection.execute("INSERT INTO lost DEFAULT VALUES")
        running.until(lambda: running.states()["public.lost"] is State.ERRORED)
        connection.execute("INSERT INTO other VALUES (1)")
        running.until(lambda: len(where.rows("public.other")) == 1)
        connection.execute("ALTER TABLE lost ADD COLUMN b int DEFAULT 3")
        connection.execute("INSERT INTO lost VALUES (4)")
        connection.execute("ALTER TABLE bare ADD COLUMN c text DEFAULT 'x'")
        running.until_ready()
        connection.execute("INSERT INTO lost VALUES (5)")
        connection.execute("INSERT INTO bare VALUES ('y')")
        wait_equal(running, connection, where, "public.other", "public.bare", "public.lost")
        # All of it before anybody has looked.
        connection.execute("ALTER TABLE lost DROP COLUMN b")
        connection.execute("INSERT INTO lost DEFAULT VALUES")
        connection.execute("ALTER TABLE lost ADD COLUMN d int DEFAULT 7")
        connection.execute("INSERT INTO lost VALUES (8)")
        running.until_applied(connection)
        running.until_ready()
        wait_equal(running, connection, where, "public.lost")
