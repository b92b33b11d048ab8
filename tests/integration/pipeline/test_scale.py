"""Many tables, a large one in bounded memory, and executors that are processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.destinations.memory import MemoryDestination
from headrace.stores import MemoryStore
from pipelining import assert_equal_tables, piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]

GIBIBYTE = 1 << 30


@pytest.mark.parametrize("count", [30, pytest.param(200, marks=pytest.mark.long)])
def test_many_tables(conninfo: str, connection: Connection, spark: Any, tmp_path: Path, count: int) -> None:
    names = [f"public.t{number}" for number in range(count)]
    for name in names:
        connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, note text)")
        connection.execute(f"INSERT INTO {name} SELECT n, %s FROM generate_series(1, 5) n", (name,))
    connection.execute("CREATE TABLE nothing (id int PRIMARY KEY)")
    connection.execute(f"CREATE PUBLICATION pub FOR TABLE nothing, {', '.join(names)}")
    destination = MemoryDestination()
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as running:
        running.until_ready(timeout=300)
        assert_equal_tables(connection, destination, "public.nothing", *names)
        with connection.transaction():
            for name in names:
                connection.execute(f"INSERT INTO {name} VALUES (6, 'one transaction for all')")
        for name in names[::7]:
            connection.execute(f"UPDATE {name} SET note = 'changed' WHERE id = 2")
        wait_equal(running, connection, destination, "public.nothing", *names, timeout=300)


# Prints the rows that came, then the peak of the resident memory of each process, in bytes.
SCRIPT = """
import json, os, sys, threading
from pathlib import Path
import psycopg
from headrace import Pipeline
from headrace.config.pipeline import PipelineConfig
from headrace.destinations.null import NullDestination
from headrace.postgres.connection import parse_conninfo
from headrace.stores import MemoryStore
from headrace.table_state import State

def descendants():
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found

def what(pid):
    if pid == os.getpid():
        return "driver"
    line = Path(f"/proc/{pid}/cmdline").read_text()
    if "java" in line.split(chr(0))[0]:
        return "executor jvm" if "CoarseGrained" in line else "jvm"
    return "worker" if "daemon" in line else "receiver"

peaks, done = {}, threading.Event()
def watch():
    while not done.wait(0.2):
        for pid in descendants():
            try:
                status = Path(f"/proc/{pid}/status").read_text()
                peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
                name = what(pid)
            except (OSError, IndexError):
                continue
            peaks[name] = max(peak, peaks.get(name, 0))

conninfo, master, root = sys.argv[1:]
config = PipelineConfig.model_validate({
    "id": 1, "publication_name": "pub", "pg_connection": parse_conninfo(conninfo), "slot_name": "scale",
    "data_dir": root, "batch": {"max_fill_ms": 50},
    "spark": {"master": master, "short_lived": True, "driver_memory": "1g"},
    "initial_copy": {"rows_per_range": 100_000},
})
destination = NullDestination()
watcher = threading.Thread(target=watch)
watcher.start()
try:
    with Pipeline(config, MemoryStore(), destination) as pipeline, psycopg.connect(conninfo, autocommit=True) as source:
        pipeline.start()
        def until(condition):
            while not condition():
                assert not pipeline.wait(0.05)
        def ready():
            tables = pipeline.status.tables.values()
            return tables and all(table.state.state is State.READY for table in tables)
        until(ready)
        # So much in one transaction that tasks decode it.
        source.execute("INSERT INTO big SELECT -n, repeat('z', 100), now() FROM generate_series(1, 100000) n")
        source.execute("INSERT INTO small VALUES (2)")
        until(lambda: destination.counts("public.small").changes == 1)
        until(lambda: destination.counts("public.big").changes == 100000)
finally:
    done.set()
    watcher.join()
print(json.dumps({"copied": destination.counts("public.big").copied_rows, "peaks": peaks}))
"""


def run_script(conninfo: str, connection: Connection, root: Path, master: str, rows: int) -> dict[str, Any]:
    connection.execute("CREATE TABLE big (id bigint PRIMARY KEY, note text, at timestamptz)")
    connection.execute(
        "INSERT INTO big SELECT n, repeat(md5(n::text), 2), now() FROM generate_series(1, %s) n", (rows,)
    )
    connection.execute("CREATE TABLE small (id int PRIMARY KEY); INSERT INTO small VALUES (1); ANALYZE")
    connection.execute("CREATE PUBLICATION pub FOR TABLE big, small")
    script = root / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, conninfo, master, str(root)],
        cwd=root,
        # The executors' directories and logs, which Spark would put beside its own files.
        env={**os.environ, "SPARK_WORKER_DIR": str(root / "executors")},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.spark
def test_executors_of_their_own(conninfo: str, connection: Connection, tmp_path: Path) -> None:
    found = run_script(conninfo, connection, tmp_path, "local-cluster[2,1,1024]", 150_000)
    assert found["copied"] == 150_000
    assert found["peaks"].keys() >= {"driver", "jvm", "executor jvm", "worker", "receiver"}


@pytest.mark.spark
@pytest.mark.long
def test_a_large_table_in_bounded_memory(conninfo: str, connection: Connection, tmp_path: Path) -> None:
    found = run_script(conninfo, connection, tmp_path, "local[2]", 5_000_000)
    assert found["copied"] == 5_000_000
    print({name: f"{peak / (1 << 20):.0f} MiB" for name, peak in found["peaks"].items()})
    # The rows are some 450 MiB as CSV; nobody may hold them.
    bounds = {"driver": 0.5, "jvm": 1.7, "worker": 0.5, "receiver": 0.3}
    assert {name: peak <= bounds[name] * GIBIBYTE for name, peak in found["peaks"].items()} == dict.fromkeys(
        bounds, True
    )
