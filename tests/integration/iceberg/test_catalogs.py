"""A pipeline into Iceberg on S3 with a SQLite catalog, and on disk with a REST catalog: both servers are real."""

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
from pyiceberg.catalog import Catalog, load_catalog

from headrace.config.iceberg import IcebergConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.iceberg import IcebergDestination
from headrace.errors import DestinationConnectionFailed, DestinationError, DestinationRejected
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.example_tables import ORDERS
from headrace.testing.local_rows import LocalRows
from headrace.testing.postgres import free_port
from headrace.testing.rest_catalog import RestCatalogServer
from headrace.testing.s3 import S3Server
from lakehouse import Lake
from pipelining import Piped, piped, pipeline_config, wait_equal

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


def _on_s3(s3: S3Server, tmp_path: Path, **properties: str) -> IcebergConfig:
    given = {**s3.iceberg_properties, **properties}
    secrets = {_SECRET: given.pop(_SECRET)}
    catalog = {"uri": str(tmp_path / "catalog.db"), "properties": given, "secrets": secrets}
    return IcebergConfig.model_validate({"warehouse": f"s3://{s3.bucket}/{tmp_path.name}", "catalog": catalog})


def _by_rest(rest: RestCatalogServer, tmp_path: Path, **secrets: str) -> IcebergConfig:
    catalog = {"type": "rest", "uri": rest.uri, "secrets": secrets}
    return IcebergConfig.model_validate({"warehouse": str(tmp_path / "warehouse"), "catalog": catalog})


@contextmanager
def _copied_and_streamed(
    settings: IcebergConfig, reader: Catalog, connection: Connection, conninfo: str, tmp_path: Path, spark: Any
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
        wait_equal(pipeline, connection, Lake(reader), "public.orders", timeout=_PATIENCE)
        connection.execute("TRUNCATE orders")
        connection.execute("INSERT INTO orders VALUES (1, 'last', NULL, NULL)")
        wait_equal(pipeline, connection, Lake(reader), "public.orders", timeout=_PATIENCE)
        yield pipeline


def test_copy_and_stream_to_s3(
    s3: S3Server, connection: Connection, conninfo: str, tmp_path: Path, spark: SparkSession
) -> None:
    settings = _on_s3(s3, tmp_path)
    assert s3.secret_key not in repr(settings)
    uri = f"sqlite:///{tmp_path}/catalog.db"
    reader = load_catalog("headrace", type="sql", uri=uri, warehouse=settings.warehouse, **s3.iceberg_properties)
    with _copied_and_streamed(settings, reader, connection, conninfo, tmp_path, spark):
        pass


def test_copy_and_stream_by_a_rest_catalog(
    rest: RestCatalogServer, connection: Connection, conninfo: str, tmp_path: Path, spark: SparkSession
) -> None:
    settings = _by_rest(rest, tmp_path)
    reader = load_catalog("check", type="rest", uri=rest.uri)
    with _copied_and_streamed(settings, reader, connection, conninfo, tmp_path, spark) as pipeline:
        with rest.down():
            connection.execute("INSERT INTO orders SELECT n, 'meanwhile' FROM generate_series(10, 20) n")
            pipeline.until(lambda: pipeline.states()["public.orders"] is State.ERRORED, _PATIENCE)
        wait_equal(pipeline, connection, Lake(reader), "public.orders", timeout=_PATIENCE)


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
