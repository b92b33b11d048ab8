"""A pipeline into Iceberg by every kind of catalog, on S3 and on disk. All servers are real, except `glue_server`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable
from pyspark.errors import AnalysisException

from glue_server import GlueServer
from headrace.config.iceberg import IcebergConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.iceberg import IcebergDestination
from headrace.errors import DestinationConnectionFailed, DestinationError, DestinationRejected
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.example_tables import ORDERS
from headrace.testing.hive_metastore import HiveMetastore
from headrace.testing.local_rows import LocalRows
from headrace.testing.postgres import free_port
from headrace.testing.rest_catalog import RestCatalogServer
from headrace.testing.s3 import S3Server
from lakehouse import Lake, canonical_rows
from pipelining import Piped, destination_rows, piped, pipeline_config, source_rows, wait_equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Connection = psycopg.Connection[tuple[Any, ...]]
_PATIENCE = 180
_SECRET = "s3.secret-access-key"
_NO_ROWS = pa.table(
    {name: pa.array([], kind) for name, kind in (("id", pa.int64()), ("name", pa.string()), ("note", pa.string()))}
)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalogServer]:
    with RestCatalogServer(tmp_path / "warehouse") as server:
        yield server


@pytest.fixture
def aws(s3: S3Server, spark: SparkSession) -> Iterator[None]:
    """Keys where AWS's library looks for them by itself."""
    jvm: Any = spark._jvm
    given = {"aws.accessKeyId": s3.access_key, "aws.secretAccessKey": s3.secret_key}
    for name, value in given.items():
        jvm.java.lang.System.setProperty(name, value)
    yield
    for name in given:
        jvm.java.lang.System.clearProperty(name)


def _on_s3(s3: S3Server, tmp_path: Path, **properties: str) -> IcebergConfig:
    given = {**s3.iceberg_properties, **properties}
    secrets = {_SECRET: given.pop(_SECRET)}
    catalog = {"uri": str(tmp_path / "catalog.db"), "properties": given, "secrets": secrets}
    return IcebergConfig.model_validate({"warehouse": f"s3://{s3.bucket}/{tmp_path.name}", "catalog": catalog})


def _by_rest(rest: RestCatalogServer, tmp_path: Path, **secrets: str) -> IcebergConfig:
    catalog = {"type": "rest", "uri": rest.uri, "secrets": secrets}
    return IcebergConfig.model_validate({"warehouse": str(tmp_path / "warehouse"), "catalog": catalog})


def _by_hive(uri: str, tmp_path: Path) -> IcebergConfig:
    return IcebergConfig.model_validate({"warehouse": str(tmp_path), "catalog": {"type": "hive", "uri": uri}})


def _by_glue(endpoint: str, s3: S3Server, tmp_path: Path) -> IcebergConfig:
    given = {
        **s3.iceberg_properties,
        "glue.endpoint": endpoint,
    }
    secrets = {_SECRET: given.pop(_SECRET)}
    catalog = {"type": "glue", "properties": given, "secrets": secrets}
    return IcebergConfig.model_validate({"warehouse": f"s3://{s3.bucket}/{tmp_path.name}", "catalog": catalog})


class _OnGlue:
    """The tables that Glue has, as a `Lake` wants a catalog: pyiceberg needs another library of AWS for that."""

    def __init__(self, glue: GlueServer, s3: S3Server) -> None:
        self._glue, self._s3 = glue, s3

    def load_table(self, name: str) -> StaticTable:
        return StaticTable.from_metadata(self._glue.location(name), self._s3.iceberg_properties)


class _BySpark:
    """The tables of a metastore, as Spark reads them."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._session = spark.newSession()
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "hive",
            ".uri": uri,
            ".cache-enabled": "false",
        }
        for key, value in settings.items():
            self._session.conf.set(f"spark.sql.catalog.metastore{key}", value)

    def rows(self, table: str) -> Any:
        while True:
            try:
                return canonical_rows(self._session.table(f"metastore.{table}").toArrow())
            except AnalysisException as error:
                # Altered between Spark's look at its columns and the reading: it asks to begin again.
                if "INCOMPATIBLE_TABLE_CHANGE_AFTER_ANALYSIS" not in str(error):
                    raise


@contextmanager
def _copied_and_streamed(
    settings: IcebergConfig, lake: Any, connection: Connection, conninfo: str, tmp_path: Path, spark: Any
) -> Iterator[Piped]:
    """A pipeline that has done all it can, and goes on."""
    connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, item text, at timestamptz, tags text[])")
    connection.execute(
        "INSERT INTO orders SELECT i, 'item ' || i, '2026-01-01'::timestamptz + i * interval '1 hour', ARRAY['a', NULL]"
        " FROM generate_series(1, 5000) i"
    )
    connection.execute("CREATE PUBLICATION pub FOR TABLE orders")
    config = pipeline_config(conninfo, tmp_path)
    with piped(config, MemoryStore(), IcebergDestination(settings), spark) as pipeline:
        pipeline.until_ready(timeout=_PATIENCE)
        connection.execute("UPDATE orders SET item = 'changed' WHERE id % 7 = 0")
        connection.execute("DELETE FROM orders WHERE id % 11 = 0")
        connection.execute("UPDATE orders SET id = id + 10000 WHERE id % 13 = 0")
        wait_equal(pipeline, connection, lake, "public.orders", timeout=_PATIENCE)
        connection.execute("TRUNCATE orders")
        connection.execute("INSERT INTO orders VALUES (1, 'last', NULL, NULL)")
        wait_equal(pipeline, connection, lake, "public.orders", timeout=_PATIENCE)
        yield pipeline


def _altered_and_renamed(pipeline: Piped, lake: Any, connection: Connection) -> None:
    """What happens next to the pipeline of `_copied_and_streamed`."""
    connection.execute("ALTER TABLE orders ADD n int DEFAULT 7, DROP tags")
    connection.execute("INSERT INTO orders VALUES (2, 'after', NULL, 8)")
    wait_equal(pipeline, connection, lake, "public.orders", timeout=_PATIENCE)
    connection.execute("CREATE SCHEMA shop")
    connection.execute("ALTER TABLE orders RENAME item TO what")
    connection.execute("ALTER TABLE orders RENAME TO purchases")
    connection.execute("ALTER TABLE purchases SET SCHEMA shop")
    connection.execute("UPDATE shop.purchases SET what = 'renamed' WHERE id = 1")
    wait_equal(pipeline, connection, lake, "shop.purchases", timeout=_PATIENCE)
    # Copied again, in place of what is there.
    connection.execute("ALTER TABLE shop.purchases ALTER n TYPE text USING n || ' pieces'")
    connection.execute("DELETE FROM shop.purchases WHERE id = 2")
    pipeline.until(lambda: destination_rows(lake, "shop.purchases") == source_rows(connection, "shop.purchases"))


def test_copy_and_stream_to_s3(
    s3: S3Server, connection: Connection, conninfo: str, tmp_path: Path, spark: SparkSession
) -> None:
    settings = _on_s3(s3, tmp_path)
    assert s3.secret_key not in repr(settings)
    uri = f"sqlite:///{tmp_path}/catalog.db"
    reader = load_catalog("headrace", type="sql", uri=uri, warehouse=settings.warehouse, **s3.iceberg_properties)
    with _copied_and_streamed(settings, Lake(reader), connection, conninfo, tmp_path, spark):
        pass


def test_copy_and_stream_by_a_rest_catalog(
    rest: RestCatalogServer, connection: Connection, conninfo: str, tmp_path: Path, spark: SparkSession
) -> None:
    settings = _by_rest(rest, tmp_path)
    reader = load_catalog("check", type="rest", uri=rest.uri)
    lake = Lake(reader)
    with _copied_and_streamed(settings, lake, connection, conninfo, tmp_path, spark) as pipeline:
        with rest.down():
            connection.execute("INSERT INTO orders SELECT n, 'meanwhile' FROM generate_series(10, 20) n")
            pipeline.until(lambda: pipeline.states()["public.orders"] is State.ERRORED, _PATIENCE)
        wait_equal(pipeline, connection, lake, "public.orders", timeout=_PATIENCE)
        _altered_and_renamed(pipeline, lake, connection)
    assert reader.list_tables("public") == []


def test_copy_and_stream_by_a_hive_metastore(
    connection: Connection, conninfo: str, tmp_path: Path, spark: SparkSession
) -> None:
    with HiveMetastore(tmp_path / "databases") as metastore:
        settings, lake = _by_hive(metastore.uri, tmp_path / "warehouse"), _BySpark(spark, metastore.uri)
        with _copied_and_streamed(settings, lake, connection, conninfo, tmp_path, spark) as pipeline:
            _altered_and_renamed(pipeline, lake, connection)
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            lake.rows("public.orders")


@pytest.mark.usefixtures("aws")
def test_copy_and_stream_by_glue(
    s3: S3Server, connection: Connection, conninfo: str, tmp_path: Path, spark: SparkSession
) -> None:
    with GlueServer() as glue:
        settings, lake = _by_glue(glue.endpoint, s3, tmp_path), Lake(_OnGlue(glue, s3))
        with _copied_and_streamed(settings, lake, connection, conninfo, tmp_path, spark) as pipeline:
            _altered_and_renamed(pipeline, lake, connection)
        with pytest.raises(KeyError):
            glue.location("public.orders")


def _use(settings: IcebergConfig, spark: SparkSession) -> None:
    """Open the destination and write an empty table."""
    destination = IcebergDestination(settings)
    try:
        destination.startup(DestinationContext(1, MemoryStore(), spark, (ORDERS,)))
        destination.write_table_rows(ORDERS, LocalRows(_NO_ROWS), 0)
    finally:
        destination.shutdown()


@pytest.mark.parametrize("wrong", ["s3.secret-access-key", "s3.endpoint"])
def test_s3_that_is_not_to_be_had(wrong: str, s3: S3Server, tmp_path: Path, spark: SparkSession) -> None:
    value = f"http://127.0.0.1:{free_port()}" if wrong == "s3.endpoint" else "not-the-secret"
    with pytest.raises(DestinationError) as raised:
        _use(_on_s3(s3, tmp_path, **{wrong: value}), spark)
    error = raised.value
    told = f"{error} {error.detail} {error.hint}"
    assert "create table public.orders" in str(error)
    expected = DestinationConnectionFailed if wrong == "s3.endpoint" else DestinationRejected
    assert isinstance(error, expected), told
    assert s3.secret_key not in told
    assert "not-the-secret" not in told


def test_a_metastore_that_is_not_to_be_had(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(DestinationConnectionFailed, match=r"cannot load table headrace\.quarantine_1") as raised:
        _use(_by_hive(f"thrift://127.0.0.1:{free_port()}", tmp_path), spark)
    assert "Failed to connect to Hive Metastore" in str(raised.value.detail)


@pytest.mark.usefixtures("aws")
def test_glue_that_is_not_to_be_had(s3: S3Server, tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(DestinationConnectionFailed, match=r"cannot load table headrace\.quarantine_1") as raised:
        _use(_by_glue(f"http://127.0.0.1:{free_port()}", s3, tmp_path), spark)
    assert s3.secret_key not in f"{raised.value} {raised.value.detail} {raised.value.hint}"


def test_a_rest_catalog_that_is_down(rest: RestCatalogServer, tmp_path: Path, spark: SparkSession) -> None:
    settings = _by_rest(rest, tmp_path, token="a-secret-token")
    with rest.down(), pytest.raises(DestinationConnectionFailed) as raised:
        _use(settings, spark)
    error = raised.value
    assert str(error).startswith("cannot open the rest catalog")
    assert "a-secret-token" not in f"{error} {error.detail} {error.hint}"
    # And once it is back, all is well.
    _use(settings, spark)
    assert load_catalog("check", type="rest", uri=rest.uri).table_exists("public.orders")


class _Locked(BaseHTTPRequestHandler):
    """A REST catalog that knows nobody."""

    def do_GET(self) -> None:
        body = b'{"error": {"message": "no such token", "type": "NotAuthorizedException", "code": 401}}'
        self.send_response(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_a_rest_catalog_that_knows_nobody(tmp_path: Path, spark: SparkSession) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Locked) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        catalog = {"type": "rest", "uri": f"http://127.0.0.1:{server.server_port}", "secrets": {"token": "a-secret"}}
        settings = IcebergConfig.model_validate({"warehouse": str(tmp_path), "catalog": catalog})
        with pytest.raises(DestinationRejected, match="cannot open the rest catalog") as raised:
            _use(settings, spark)
        server.shutdown()
    assert "no such token" in str(raised.value.detail)
    assert "credentials" in str(raised.value.hint)
    assert "a-secret" not in f"{raised.value} {raised.value.detail} {raised.value.hint}"
