"""The session: what is in force, refused and left alone. A process has one JVM: other starts are other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from headrace.config.spark import SparkConfig
from headrace.errors import ConfigError, SparkUnavailable
from headrace.spark import session as session_module
from headrace.spark.session import adopt_session, build_session, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(script: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (directory / "work").mkdir()
    program = directory / "script.py"
    program.write_text(textwrap.dedent(script))
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", program],
        cwd=directory / "work",
        env={**os.environ, "TMPDIR": str(directory), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_what_matters_is_in_force(spark: SparkSession) -> None:
    context = spark.sparkContext
    assert context.master == "local[2,4]"
    assert context.pythonExec == sys.executable
    conf = context.getConf()
    assert conf.get("spark.scheduler.mode") == "FAIR"
    assert conf.get("spark.python.daemon.module") == "headrace.spark.daemon"
    assert conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"
    assert conf.get("spark.driver.host") == "127.0.0.1"


def test_a_second_build_shares_the_session(spark: SparkSession) -> None:
    assert build_session(SparkConfig(master="local[2]")).sparkContext is spark.sparkContext


def test_a_second_build_with_other_settings_is_refused(spark: SparkSession) -> None:
    with pytest.raises(SparkUnavailable, match=r"its master is local\[2,4\], not yarn; it lacks the package a:b:1"):
        build_session(SparkConfig(master="yarn", packages=("a:b:1",)))


def test_a_session_that_was_there_before_outlives_the_block(spark: SparkSession) -> None:
    with open_session(SparkConfig(master="local[2]")) as shared, open_session(spark) as adopted:
        assert shared.sparkContext is adopted.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3


@pytest.fixture
def brought(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with settings of its own, on the run's Spark."""
    session = spark.newSession()
    interpreter = spark.sparkContext.pythonExec
    yield session
    spark.sparkContext.pythonExec = interpreter


def test_a_session_brought_along_is_set_to_utc(brought: SparkSession) -> None:
    brought.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    brought.sparkContext.pythonExec = "python3"
    with capture_logs() as logs:
        assert adopt_session(brought) is brought
    assert brought.conf.get("spark.sql.session.timeZone") == "UTC"
    assert brought.sparkContext.pythonExec == sys.executable
    assert [log["was"] for log in logs] == ["Asia/Kathmandu"]


def test_a_session_that_is_slower_than_need_be_is_said_to_be(
    brought: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "FASTER", {"spark.scheduler.mode": "FAIR", "spark.speed": "full"})
    with capture_logs() as logs:
        adopt_session(brought)
    assert [(log["log_level"], log["settings"]) for log in logs] == [("warning", {"spark.speed": "full"})]


def test_a_thing_that_is_no_classic_session_is_refused() -> None:
    with pytest.raises(ConfigError, match="Spark Connect"):
        adopt_session(object())  # type: ignore[arg-type]


def test_an_old_or_unpinned_session_is_refused_with_all_reasons(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_MIN_SPARK", (5, 0))
    monkeypatch.setattr(session_module, "ClientServer", str)
    with pytest.raises(ConfigError, match=r"its Spark is 4\.1\.4, older than 5\.0; PYSPARK_PIN_THREAD is false"):
        adopt_session(spark)


@pytest.mark.spark
def test_the_environment_does_not_decide_and_nothing_is_left_behind(tmp_path: Path) -> None:
    done = run(
        """
        import os, sys
        from headrace.config.spark import SparkConfig
        from headrace.errors import ConfigError
        from headrace.spark.jobs import run_tasks
        from headrace.spark.session import adopt_session, build_session

        before = dict(os.environ)
        session = build_session(SparkConfig(master="local[1]", short_lived=True, driver_memory="512m"))
        assert {k: v for k, v in os.environ.items() if k in before} == before
        assert run_tasks(session, [1], lambda work: sys.version_info[:2], description="t") == [sys.version_info[:2]]
        session.sql("CREATE TABLE t AS SELECT 1 AS a")
        warehouse = session.conf.get("spark.sql.warehouse.dir").removeprefix("file:")
        print(os.listdir("."), os.listdir(warehouse))
        session.stop()
        try:
            adopt_session(session)
        except ConfigError as error:
            print(error)
        print(warehouse)
        """,
        tmp_path,
        PYSPARK_PYTHON="/nowhere/python",
        PYSPARK_DRIVER_PYTHON="/nowhere/python",
        PYSPARK_SUBMIT_ARGS="--master spark://nowhere:1 pyspark-shell",
        PYSPARK_PIN_THREAD="false",
        SPARK_REMOTE="sc://nowhere",
    )
    assert done.returncode == 0, done.stderr
    listing, refusal, warehouse = done.stdout.splitlines()
    assert listing == "[] ['t']"
    assert refusal == "the Spark session cannot be used: it is stopped"
    assert not Path(warehouse).exists()
    # The JVM's own line about a module that Spark asks for cannot be turned off.
    assert [line for line in done.stderr.splitlines() if "incubator" not in line] == []


@pytest.mark.spark
def test_a_spark_that_does_not_start_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    done = run(
        """
        from headrace.config.spark import SparkConfig
        from headrace.errors import SparkUnavailable
        from headrace.spark.session import build_session

        for memory in ("1k", "256m"):  # less than Java starts with, less than Spark does
            try:
                build_session(SparkConfig(short_lived=True, driver_memory=memory))
            except SparkUnavailable as error:
                print("raised", error, "hint", error.hint)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    no_java, no_spark = (line for line in done.stdout.splitlines() if line.startswith("raised"))
    assert no_java.startswith("raised Spark did not start with master local[*]: [JAVA_GATEWAY_EXITED]")
    assert "hint see what Java wrote just before" in no_java
    assert "INVALID_DRIVER_MEMORY" in no_spark


@pytest.mark.spark
def test_a_java_that_ends_while_running_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    done = run(
        """
        import os
        from headrace.config.spark import SparkConfig
        from headrace.errors import SparkGone
        from headrace.spark.jobs import run_tasks
        from headrace.spark.labels import label_thread
        from headrace.spark.session import build_session, open_session

        config = SparkConfig(master="local[1]", short_lived=True, driver_memory="512m")
        with open_session(config) as session:
            assert session.range(2).count() == 2
        session = build_session(config)
        java = session.sparkContext._gateway.proc
        try:
            label_thread(session, "pipeline")
            java.kill()
            java.wait()
            run_tasks(session, [1], str, description="copy")
        except SparkGone as error:
            print("raised", error, error.retry.value, error.hint)
        os._exit(0)  # pyspark's own clean-up would wait for Java
        """,
        tmp_path,
        PYTHONUNBUFFERED="1",
    )
    assert done.stdout.startswith(
        "raised Spark's Java process has ended: killed by SIGKILL timed start the process again"
    ), done.stderr
