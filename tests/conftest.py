"""One Postgres server per run and version; a database per test; one Spark per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.rows import tuple_row

from headrace.config.spark import SparkConfig
from headrace.testing import DEFAULT_VERSION, PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Also what S3 needs: a process has one Spark.
ICEBERG_PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
DELTA_PACKAGES = ("io.delta:delta-spark_4.1_2.13:4.4.0",)
DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the run's Spark, before `-m` selects."""
    for item in items:
        found = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
        # The suite of destinations has a fixture of this name for those that need none.
        if "spark" in found and not found["spark"][-1].func.__module__.startswith("headrace.testing"):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[int], PostgresServer]]:
    """Servers by major version, started when first asked for, stopped at the end of the run."""
    with ExitStack() as stack:
        running: dict[int, PostgresServer] = {}

        def server(version: int) -> PostgresServer:
            if version not in running:
                running[version] = stack.enter_context(PostgresServer(version))
            return running[version]

        yield server


@pytest.fixture(scope="session")
def postgres(servers: Callable[[int], PostgresServer]) -> PostgresServer:
    """The server of the version under test (17, or HEADRACE_POSTGRES)."""
    return servers(DEFAULT_VERSION)


@pytest.fixture
def conninfo(postgres: PostgresServer) -> Iterator[str]:
    """A fresh database."""
    with postgres.database() as info:
        yield info


@pytest.fixture
def connection(conninfo: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """An autocommit connection to the test's database."""
    with psycopg.connect(conninfo, autocommit=True, row_factory=tuple_row) as conn:
        yield conn


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The run's Spark session. Tasks can import what lies in tests/; functions of test modules must be nested."""
    from headrace.spark.session import build_session

    session = build_session(
        SparkConfig(
            master="local[2]",
            driver_memory="1g",
            short_lived=True,
            packages=(*ICEBERG_PACKAGES, *DELTA_PACKAGES),
            conf={**DELTA_CONF, "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent)},
        )
    )
    yield session
    session.stop()
