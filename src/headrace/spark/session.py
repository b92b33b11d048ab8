"""The Spark session: built from settings, or adopted from a user who has one.

On a cluster, each executor needs what a task imports: `headrace` and its dependencies, in the same minor version of
Python. `spark.pyspark.python` names the driver's own interpreter; where that path does not exist on the executors, give
another in `conf`, or ship an environment with `spark.archives` (conda-pack or venv-pack) and name its Python. The spool
and the destination must be places that driver and executors see alike.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog
from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ..config.spark import SparkConfig
from ..errors import ConfigError, SparkUnavailable
from .jars import ASKED_FOR, jar_settings
from .java import find_java
from .java_output import JavaOutput
from .labels import java_is_gone
from .settings import FASTER, is_local, spark_master, spark_settings

__all__ = ["adopt_session", "build_session", "open_session"]

_log = structlog.get_logger("headrace.spark")

# Starting changes the environment for a moment, and a process has one Spark.
_starting = threading.RLock()
_MIN_SPARK = (4, 1)  # Unix sockets to the workers, and the worker protocol that daemon.py knows
# PySpark logs every error of a query with the values that it quotes, and raises it as well.
_QUOTING_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
# Variables by which a shell, a notebook or another tool would choose another Python, other arguments or Spark Connect.
_OVERRULED = (
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_PIN_THREAD",
    "PYSPARK_UDS_MODE",
    "MASTER",
    "SPARK_API_MODE",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_LOCAL_REMOTE",
    "SPARK_REMOTE",
    "SPARK_TESTING",
)


@contextmanager
def open_session(source: SparkConfig | SparkSession) -> Iterator[SparkSession]:
    """A session while the block runs: stopped at its end if it was started here, left alone if it was there before."""
    if not isinstance(source, SparkConfig):
        yield adopt_session(source)
        return
    with _starting:
        shared = SparkContext._active_spark_context is not None
        session = build_session(source)
    try:
        yield session
    finally:
        if not shared:
            _stop(session)


def _stop(session: SparkSession) -> None:
    if not java_is_gone():
        session.stop()
        return
    # There is nothing to talk to. PySpark keeps the gateway of the dead process otherwise.
    with contextlib.suppress(Exception), SparkContext._lock:
        session._jvm = None
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = None


def build_session(config: SparkConfig) -> SparkSession:
    """Start Spark, or share the session that this process has already: there is one JVM per process.

    Raises:
        SparkUnavailable: no Java that Spark runs on, Spark did not start, or the process has a session of its own with
            another master or without the packages asked for.
    """
    with _starting:
        running = SparkContext._active_spark_context
        if running is None:
            return _start(config)
        _same_session(running, config)
        return adopt_session(SparkSession.builder.getOrCreate())


def _start(config: SparkConfig) -> SparkSession:
    settings = spark_settings(config, _scratch_directory())
    with _environment(settings):
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # set under spark-submit: then a JVM runs already
            find_java()
            settings |= jar_settings(config.packages, config.conf)
        output = JavaOutput()
        conf = _conf(settings)
        try:
            # A JVM outlives the session that was stopped before this one.
            gateway = SparkContext._gateway or _launch(conf, output)
            context = SparkContext(conf=conf, gateway=gateway)
            session = SparkSession(context)
        except (PySparkException, Py4JError, OSError) as error:
            raise _not_started(error, config, output.problem()) from None
    _refuse(session)
    _silence_quoting_loggers()
    return session


def _launch(conf: SparkConf, output: JavaOutput) -> Any:
    packages = conf.get("spark.jars.packages")
    if packages:
        _log.info("Spark fetches jars that are not here yet first", packages=packages)
    with output.writing() as descriptor:
        # A session of its own: what a terminal, `timeout` or a supervisor sends to our process group must not end Java
        # before the batch under way is committed. It ends with us, when its standard input is closed.
        return launch_gateway(conf, {"stderr": descriptor, "start_new_session": True})


def adopt_session(session: SparkSession) -> SparkSession:
    """Make a session that the user brought fit: timestamps in UTC, and for a local master the driver's own Python.

    Raises:
        ConfigError: it cannot be made fit; the detail lists why.
    """
    _refuse(session)
    _silence_quoting_loggers()
    context = session.sparkContext
    if session.conf.get("spark.sql.session.timeZone") not in ("UTC", "Etc/UTC", "Z", "+00:00"):
        _log.info("the Spark session now shows timestamps in UTC", was=session.conf.get("spark.sql.session.timeZone"))
        session.conf.set("spark.sql.session.timeZone", "UTC")
    if is_local(context.master or "") and shutil.which(context.pythonExec) != sys.executable:
        context.pythonExec = sys.executable
    slow = {name: value for name, value in FASTER.items() if session.conf.get(name, None) != value}
    if slow:
        _log.warning("jobs will be slower than they need be: start Spark with these settings", settings=slow)
    return session


def _silence_quoting_loggers() -> None:
    """Keep row values out of the log of this process."""
    for name in _QUOTING_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _refuse(session: SparkSession) -> None:
    """Raise if nothing that can be done at run time makes the session fit."""
    if not isinstance(session, SparkSession) or type(session).__module__.startswith("pyspark.sql.connect"):
        msg = "the Spark session cannot be used"
        raise ConfigError(msg, detail="it is a Spark Connect session; Headrace needs a classic one")
    if session.sparkContext._jsc is None:
        msg = "the Spark session cannot be used"
        raise ConfigError(msg, detail="it is stopped", hint="make a new session")
    reasons = []
    if tuple(int(part) for part in session.version.split(".")[:2]) < _MIN_SPARK:
        reasons.append(f"its Spark is {session.version}, older than {'.'.join(map(str, _MIN_SPARK))}")
    if not isinstance(SparkContext._gateway, ClientServer):
        reasons.append("PYSPARK_PIN_THREAD is false, so that jobs of different tables could not be told apart")
    if reasons:
        msg = "the Spark session cannot be used"
        raise ConfigError(msg, detail="; ".join(reasons))


def _same_session(running: SparkContext, config: SparkConfig) -> None:
    conf = running.getConf()
    have = {one for name in (ASKED_FOR, "spark.jars.packages") for one in (conf.get(name) or "").split(",")}
    missing = [package for package in config.packages if package not in have]
    reasons = [f"it lacks the package {package}" for package in missing]
    if running.master != spark_master(config):
        reasons.insert(0, f"its master is {running.master}, not {spark_master(config)}")
    if reasons:
        msg = "this process has a Spark session already, which does not fit the settings"
        raise SparkUnavailable(
            msg, detail="; ".join(reasons), hint="stop that session first, or adapt the settings to it"
        )


def _conf(settings: Mapping[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    return conf


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """While Spark starts, only the settings decide; afterwards the caller's environment is as it was."""
    before = {name: os.environ.pop(name) for name in _OVERRULED if name in os.environ}
    # SparkContext.pythonExec, which the workers are started with, is read from here and not from the settings.
    os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
    added = {"PYSPARK_PYTHON"}
    if is_local(settings["spark.master"]) and "SPARK_LOCAL_IP" not in os.environ:
        # The master and the workers of local-cluster bind to this, not to spark.driver.bindAddress.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        added.add("SPARK_LOCAL_IP")
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
        os.environ.update(before)


def _scratch_directory() -> str:
    path = tempfile.mkdtemp(prefix="headrace-warehouse-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def _not_started(error: Exception, config: SparkConfig, missing_jars: str | None) -> SparkUnavailable:
    text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    msg = f"Spark did not start with master {config.master}"
    if missing_jars is not None:
        hint = "the first start needs the network, or a mirror of Maven Central named by spark.jars.ivySettings"
        return SparkUnavailable(msg, detail=missing_jars[:500], hint=hint)
    hint = "see what Java wrote just before; check the settings of spark"
    return SparkUnavailable(msg, detail=first.strip()[:500], hint=hint)
