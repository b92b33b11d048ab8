"""Partitions that come, go and are truncated while the pipeline runs, published by their root and by themselves.

All trees share one pipeline per setting. After the statements of every case have run, in one go, the destination must
show what the source shows of each table that is published by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.destinations.memory import MemoryDestination
from headrace.errors import TableNotFound
from headrace.pipeline import discovery
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.postgres import PostgresServer
from pipelining import Piped, destination_rows, piped, pipeline_config, source_rows

Connection = psycopg.Connection[Any]

pytestmark = pytest.mark.matrix

TREE = """
CREATE TABLE {t} (id int, k int, v text, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES IN (1);
CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES IN (2) PARTITION BY RANGE (id);
CREATE TABLE {t}_2a PARTITION OF {t}_2 FOR VALUES FROM (0) TO (100);
INSERT INTO {t} SELECT n, 1 + n % 2, 'v' || n FROM generate_series(1, 20) n;
CREATE TABLE {t}_new (id int, k int, v text, PRIMARY KEY (id, k));
"""

CASES = {
    "attached_with_rows": (
        "INSERT INTO {t}_new SELECT n, 3, 'before' FROM generate_series(1, 5) n",
        "ALTER TABLE {t} ATTACH PARTITION {t}_new FOR VALUES IN (3)",
        "INSERT INTO {t} VALUES (6, 3, 'after')",
        "UPDATE {t} SET v = 'changed' WHERE id = 2",
    ),
    "attached_deep_in_the_tree": (
        "INSERT INTO {t}_new SELECT n, 2, 'before' FROM generate_series(101, 105) n",
        "ALTER TABLE {t}_2 ATTACH PARTITION {t}_new FOR VALUES FROM (100) TO (200)",
        "DELETE FROM {t} WHERE id = 103",
    ),
    "a_whole_tree_attached": (
        "CREATE TABLE {t}_4 (id int, k int, v text, PRIMARY KEY (id, k)) PARTITION BY RANGE (id)",
        "CREATE TABLE {t}_4a PARTITION OF {t}_4 FOR VALUES FROM (0) TO (10)",
        "INSERT INTO {t}_4 VALUES (4, 4, 'before')",
        "ALTER TABLE {t} ATTACH PARTITION {t}_4 FOR VALUES IN (4)",
        "INSERT INTO {t} VALUES (5, 4, 'after')",
    ),
    "detached": (
        "UPDATE {t} SET v = 'last' WHERE k = 1",
        "ALTER TABLE {t} DETACH PARTITION {t}_1",
        "UPDATE {t}_1 SET v = 'alone'",
        "INSERT INTO {t} VALUES (50, 2, 'after')",
    ),
    "detached_deep_in_the_tree": ("ALTER TABLE {t}_2 DETACH PARTITION {t}_2a", "DELETE FROM {t} WHERE id < 5"),
    "detached_changed_and_attached_again": (
        "ALTER TABLE {t} DETACH PARTITION {t}_1",
        "UPDATE {t}_1 SET v = 'alone'",
        "INSERT INTO {t}_1 VALUES (77, 1, 'alone')",
        "ALTER TABLE {t} ATTACH PARTITION {t}_1 FOR VALUES IN (1)",
        "DELETE FROM {t} WHERE id = 3",
    ),
    "created_empty": (
        "CREATE TABLE {t}_3 PARTITION OF {t} FOR VALUES IN (3)",
        "INSERT INTO {t} SELECT n, 3, 'new' FROM generate_series(1, 5) n",
        "UPDATE {t} SET k = 3 WHERE id = 7",
    ),
    "created_and_truncated_later": (
        "CREATE TABLE {t}_3 PARTITION OF {t} FOR VALUES IN (3)",
        "INSERT INTO {t} SELECT n, 3, 'new' FROM generate_series(1, 5) n",
        "TRUNCATE {t}_3",
        "INSERT INTO {t} VALUES (9, 3, 'last')",
    ),
    "dropped": ("DROP TABLE {t}_1", "INSERT INTO {t} VALUES (60, 2, 'after')"),
    "truncated_partition": ("TRUNCATE {t}_1", "INSERT INTO {t} VALUES (61, 1, 'after')"),
    "truncated_part_of_the_tree": ("TRUNCATE {t}_2",),
    "truncated_root": ("TRUNCATE {t}", "INSERT INTO {t} VALUES (1, 1, 'after'), (2, 2, 'after')"),
    "truncated_with_what_refers_to_it": (
        "CREATE TABLE {t}_other (id int, k int, FOREIGN KEY (id, k) REFERENCES {t})",
        "ALTER PUBLICATION pub ADD TABLE {t}_other",
        "INSERT INTO {t}_other VALUES (1, 2), (2, 1)",
        "TRUNCATE {t} CASCADE",
        "INSERT INTO {t} VALUES (1, 1, 'after')",
        "INSERT INTO {t}_other VALUES (1, 1)",
    ),
}

TREES = {case: f"tree{number:02}" for number, case in enumerate(CASES)}


@dataclass(frozen=True)
class Walked:
    """One pipeline in which every case has happened."""

    mode: str
    by_root: bool
    connection: Connection
    destination: MemoryDestination
    store: MemoryStore
    running: Piped

    def published(self, case: str) -> list[str]:
        found = self.connection.execute(
            "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE tablename ~ %s ORDER BY 1",
            (f"^{TREES[case]}(_|$)",),
        )
        return [name for (name,) in found.fetchall()]

    def differing(self, case: str) -> list[str]:
        """Published tables of the case that are not at the destination as they are at the source."""
        names = self.published(case)
        of_tree = {name for name in self.running.status.tables if name.startswith(f"public.{TREES[case]}")}
        return sorted({*names} ^ of_tree) + [name for name in names if not self._same(name)]

    def _same(self, name: str) -> bool:
        try:
            return source_rows(self.connection, name) == destination_rows(self.destination, name)
        except (TableNotFound, KeyError):
            return False

    def copies(self, name: str) -> int:
        row = self.connection.execute("SELECT %s::regclass::oid::int8", (name,)).fetchone()
        assert row is not None
        history = self.store.get_table_state_history(row[0])
        return [entry.state.state for entry in history].count(State.FINISHED_COPY)


def named(param: tuple[str, bool]) -> str:
    return f"{param[0]}-{'by_root' if param[1] else 'by_leaf'}"


BY_LEAF = [("trigger", False), ("relations", False)]


@pytest.fixture(scope="module", params=[("trigger", True), ("relations", True), *BY_LEAF], ids=named)
def walked(
    request: pytest.FixtureRequest, postgres: PostgresServer, spark: Any, tmp_path_factory: Any
) -> Iterator[Walked]:
    mode, by_root = request.param
    with (
        postgres.database() as conninfo,
        psycopg.connect(conninfo, autocommit=True) as connection,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(discovery, "INTERVAL_S", 0.5)
        for tree in TREES.values():
            connection.execute(TREE.replace("{t}", tree))
        roots = ", ".join(TREES.values())
        via_root = str(by_root).lower()
        connection.execute(f"CREATE PUBLICATION pub FOR TABLE {roots} WITH (publish_via_partition_root = {via_root})")
        install = "always" if mode == "trigger" else "never"
        config = pipeline_config(conninfo, Path(tmp_path_factory.mktemp("partitions")), source={"install": install})
        destination, store = MemoryDestination(), MemoryStore()
        with piped(config, store, destination, spark) as running:
            running.until_ready()
            walk = Walked(mode, by_root, connection, destination, store, running)
            for case, statements in CASES.items():
                for statement in statements:
                    connection.execute(statement.replace("{t}", TREES[case]))
            yield walk


@pytest.mark.parametrize("case", CASES)
def test_the_destination_follows(walked: Walked, case: str) -> None:
    walked.running.until(lambda: not walked.differing(case))


def test_an_empty_partition_is_no_reason_to_copy_again(walked: Walked) -> None:
    walked.running.until(lambda: not walked.differing("created_empty"))
    tree = TREES["created_empty"]
    if not walked.by_root:
        assert walked.copies(f"{tree}_3") == walked.copies(f"{tree}_1") == 1
    elif walked.mode == "trigger":
        assert walked.copies(tree) == 1
    else:
        # Nobody said that it came empty.
        walked.running.until(lambda: walked.copies(tree) == 2)


@pytest.mark.parametrize("walked", BY_LEAF, ids=named, indirect=True)
def test_what_a_detached_partition_had_last_stays(walked: Walked) -> None:
    name = f"public.{TREES['detached']}_1"
    walked.running.until(lambda: name not in walked.running.status.tables)
    rows = walked.destination.rows(name).to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(2, 21, 2))
    # Postgres 14 goes on sending what happens to it afterwards.
    lasting = {"alone"} if walked.connection.info.server_version < 150000 else set()
    assert {row["v"] for row in rows} - lasting <= {"last"}
