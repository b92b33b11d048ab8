"""A real Iceberg REST catalog on loopback for tests: Iceberg's own servlet over a catalog in a SQLite file.

It is the reference server, `org.apache.iceberg.rest.RESTCatalogServer`, put together here piece by piece, because that
one listens on every address. Spark's jars have the rest of what it needs, an HTTP server among it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..spark.jars import Jar, fetch_jars, verify_jar
from .binaries import cache_directory
from .java_process import JavaProcess
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


class RestCatalogServer:
    """`with RestCatalogServer(directory) as rest:` then `rest.uri`; tables without a place of their own go there.

    It takes every token and credential.
    """

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self.port = free_port()
        self._java: JavaProcess | None = None
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
        # Iceberg's jars go first: Spark's lack none of what it needs.
        self._java = java = JavaProcess(_server_jars())
        try:
            java.start()
            self._serve(java.jvm)
        except BaseException as error:
            msg = f"the REST catalog did not start:\n{java.said()}"
            self.__exit__()
            raise RuntimeError(msg) from error
        return self

    def __exit__(self, *_: object) -> None:
        java, self._java, self._server = self._java, None, None
        if java is not None:
            java.stop()

    def _serve(self, java: Any) -> None:
        catalog = java.org.apache.iceberg.jdbc.JdbcCatalog()
        catalog.setConf(java.org.apache.hadoop.conf.Configuration())
        self._warehouse.mkdir(parents=True, exist_ok=True)
        database = f"jdbc:sqlite:{self._warehouse / 'rest.db'}?busy_timeout=60000&transaction_mode=IMMEDIATE"
        properties = {"uri": database, "jdbc.schema-version": "V1", "warehouse": f"file://{self._warehouse.resolve()}"}
        catalog.initialize("backend", properties)
        rest = java.org.apache.iceberg.rest
        jetty = java.org.sparkproject.jetty
        context = jetty.servlet.ServletContextHandler(0)
        context.addServlet(jetty.servlet.ServletHolder(rest.RESTCatalogServlet(rest.RESTCatalogAdapter(catalog))), "/*")
        self._server = jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", self.port))
        self._server.setHandler(context)
        self._server.start()


def _server_jars() -> Path:
    """Return a directory of the cache with the server's jars and no others; fetch them the first time."""
    directory = cache_directory() / "jars" / f"iceberg-rest-{_VERSION}"
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
            fetched = fetch_jars(_JARS, Path(temporary))
            for jar in _JARS:
                verify_jar(jar, fetched / jar.file_name)
            try:
                fetched.rename(directory)
            except OSError:
                if not directory.exists():  # another process may have been quicker; its copy is as good
                    raise
    return directory
