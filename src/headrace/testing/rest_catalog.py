"""A real Iceberg REST catalog on loopback for tests: Iceberg's own servlet over a catalog in a SQLite file.

It is the reference server, `org.apache.iceberg.rest.RESTCatalogServer`, put together here piece by piece, because that
one listens on every address. Spark's jars have the rest of what it needs, an HTTP server among it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from ..spark.java import find_java
from .maven_jars import Jar, maven_jars, spark_jars
from .postgres import free_port

__all__ = ["RestCatalogServer"]

_VERSION = "1.11.0"
_JARS = (
    Jar(
        f"org.apache.iceberg:iceberg-api:{_VERSION}",
        "f00675a12ceb6d833bb9c22024823a3e7afdedf7abcefe34719f45b0d211995a",
    ),
    Jar(
        f"org.apache.iceberg:iceberg-common:{_VERSION}",
        "b2835d00db7c92bdfa728123ad7cdcb488e2f2805c1c51fb9ae94e8bd203bd7d",
    ),
    Jar(
        f"org.apache.iceberg:iceberg-core:{_VERSION}",
        "53b9eb7a8c34fb9958ea7d9a4d19ba5bc96f592d0f05e8625b0778c70b1f0090",
    ),
    Jar(
        f"org.apache.iceberg:iceberg-core:{_VERSION}",
        "4284719a5f0eb7db01e9f784a0ed4ca8bacf7d6f9951924143afc083428d8be3",
        classifier="tests",
    ),
    Jar(
        f"org.apache.iceberg:iceberg-bundled-guava:{_VERSION}",
        "396d48d93ef5735f2ddef0cf9b3d6968ebd67b64b5cfe753d41c429d3f46a2a1",
    ),
    Jar(
        "com.github.ben-manes.caffeine:caffeine:2.9.3",
        "1e0a7bbef1dd791653143f3f05d0e489934bf5481e58a87c9e619cd46b68729b",
    ),
    Jar(
        "org.apache.httpcomponents.core5:httpcore5:5.3.4",
        "f2b2fd7a0164e8c3120cd8437bc9fea439239e165c17262b3e907daa7e979f80",
    ),
    Jar("org.xerial:sqlite-jdbc:3.50.3.0", "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08"),
)
_STOP_TIMEOUT_S = 15


class RestCatalogServer:
    """`with RestCatalogServer(directory) as rest:` then `rest.uri`; tables without a place of their own go there.

    It takes every token and credential.
    """

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: Any = None
        self._server: Any = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def down(self) -> Iterator[None]:
        """While the block runs, nobody answers at `uri`."""
        self._server.stop()
        try:
            yield
        finally:
            self._server.start()

    def __enter__(self) -> RestCatalogServer:
        with tempfile.TemporaryFile() as log:
            try:
                self._launch(log)
                self._serve()
            except BaseException as error:
                self.__exit__()
                log.seek(0)
                msg = f"the REST catalog did not start:\n{log.read().decode(errors='replace')[-2000:]}"
                raise RuntimeError(msg) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._gateway is not None:
            self._gateway.close()
        process, self._process, self._gateway, self._server = self._process, None, None, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _launch(self, log: Any) -> None:
        spark = spark_jars()
        jars = maven_jars(f"iceberg-rest-{_VERSION}", _JARS)
        port, token, self._process = launch_gateway(
            jarpath=str(next(spark.glob("py4j-*.jar"))),
            # Iceberg's jars go first: Spark's lack none of what it needs.
            classpath=os.pathsep.join([f"{jars}/*", f"{spark}/*"]),
            javaopts=["-XX:TieredStopAtLevel=1", "-Xmx256m"],
            java_path=str(find_java().path),
            die_on_exit=True,
            enable_auth=True,
            redirect_stderr=log,
            return_proc=True,
        )
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
        )

    def _serve(self) -> None:
        java = self._gateway.jvm
        catalog = java.org.apache.iceberg.jdbc.JdbcCatalog()
        catalog.setConf(java.org.apache.hadoop.conf.Configuration())
        self._warehouse.mkdir(parents=True, exist_ok=True)
        database = f"jdbc:sqlite:{self._warehouse / 'rest.db'}?busy_timeout=60000&transaction_mode=IMMEDIATE"
        properties = {"uri": database, "jdbc.schema-version": "V1", "warehouse": self._warehouse.as_uri()}
        catalog.initialize("backend", properties)
        rest = java.org.apache.iceberg.rest
        jetty = java.org.sparkproject.jetty
        context = jetty.servlet.ServletContextHandler(0)
        context.addServlet(jetty.servlet.ServletHolder(rest.RESTCatalogServlet(rest.RESTCatalogAdapter(catalog))), "/*")
        self._server = jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", self.port))
        self._server.setHandler(context)
        self._server.start()
