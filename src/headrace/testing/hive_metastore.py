"""A real Hive metastore on loopback for tests: Hive's own handler behind Thrift, over a database in memory.

It is what `HiveMetaStore.startMetaStore` starts, put together here piece by piece, because that one listens on every
address. All of it is among Spark's jars.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from .java_process import JavaProcess
from .postgres import free_port

__all__ = ["HiveMetastore"]

_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    # The default pool is not among Spark's jars.
    "datanucleus.connectionPoolingType": "none",
    # What every metastore of Iceberg tables needs: Hive goes by the place of a column, Iceberg by its id.
    "hive.metastore.disallow.incompatible.col.type.changes": "false",
}


class HiveMetastore:
    """`with HiveMetastore(directory) as metastore:` then `metastore.uri`; databases get a place in the directory."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self.port = free_port()
        self._java = JavaProcess()
        self._server: Any = None
        self._thread: threading.Thread | None = None

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    def __enter__(self) -> HiveMetastore:
        try:
            self._java.start()
            self._server = self._made(self._java.jvm)
            self._thread = threading.Thread(target=self._server.serve, name="hive-metastore", daemon=True)
            self._thread.start()
        except BaseException as error:
            msg = f"the Hive metastore did not start:\n{self._java.said()}"
            self.__exit__()
            raise RuntimeError(msg) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._server.stop()
            self._thread.join()
        self._java.stop()

    def _made(self, java: Any) -> Any:
        # Where Derby says that it is there.
        java.java.lang.System.setProperty("derby.stream.error.file", "/dev/null")
        hive, thrift = java.org.apache.hadoop.hive, java.org.apache.thrift
        conf = hive.conf.HiveConf()
        for name, value in {**_SETTINGS, "hive.metastore.warehouse.dir": f"file://{self._warehouse.resolve()}"}.items():
            conf.set(name, value)
        # Locks are in tables that are not among those that come by themselves.
        hive.metastore.txn.TxnDbUtil.prepDb(conf)
        handler = hive.metastore.HiveMetaStore.newRetryingHMSHandler("metastore", conf, False)
        # The socket listens from here on; who connects before `serve` waits.
        socket = thrift.transport.TServerSocket(java.java.net.InetSocketAddress("127.0.0.1", self.port))
        arguments = thrift.server.TThreadPoolServer.Args(socket)
        arguments.processor(hive.metastore.TSetIpAddressProcessor(handler))
        # Clients may stay connected for as long as they live.
        arguments.stopTimeoutVal(0)
        return thrift.server.TThreadPoolServer(arguments)
