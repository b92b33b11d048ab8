"""Separate executor processes: what tasks need travels with them, and what they say comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os
import pyarrow as pa
from headrace.config.spark import SparkConfig
from headrace.errors import SlotNotFound, SourceConnectionFailed
from headrace.spark.jobs import TaskReports, job, run_tasks, task_dataframe
from headrace.spark.session import build_session

# Both executors are there before the first task is: else one of them may do them all.
registered = "spark.scheduler.{}RegisteredResources{}"
both = {registered.format("min", "Ratio"): "1.0", registered.format("max", "WaitingTime"): "120s"}
config = SparkConfig(master="local-cluster[2,1,1024]", short_lived=True, driver_memory="1g", conf=both)
session = build_session(config)

def where(work):
    import sys
    from pathlib import Path
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    assert "headrace.pgoutput.columnar" in sys.modules
    return work, executor

places = run_tasks(session, list(range(16)), where, description="where")
assert [work for work, _ in places] == list(range(16))
executors = {executor for _, executor in places}
assert len(executors) == 2, executors
jvm = session._jvm.java.lang.ProcessHandle.current().pid()
assert jvm not in executors

schema = pa.schema([("id", pa.int64())])
with TaskReports(session) as reports:
    def read(work):
        reports.put(work, work * 10)
        yield pa.record_batch([[work]], schema=schema)
    frame = task_dataframe(session, [0, 1, 2, 3], read, schema, description="rows")
    assert sorted(row.id for row in frame.collect()) == [0, 1, 2, 3]
    assert reports.values() == {0: 0, 1: 10, 2: 20, 3: 30}

def fails(kind):
    raise kind("sent by a task", hint="as it was")

for kind in (SlotNotFound, SourceConnectionFailed):
    try:
        run_tasks(session, [kind], fails, description="failing")
    except kind as error:
        assert error.hint == "as it was"
    else:
        raise AssertionError(kind)
session.stop()
print("done")
"""


@pytest.mark.spark
def test_tasks_run_in_executors_of_their_own(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        # The executors' directories and logs, which Spark would put beside its own files.
        env={**os.environ, "SPARK_WORKER_DIR": str(tmp_path / "executors")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
