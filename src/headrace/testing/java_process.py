"""A Java process of a test server's own, put together from Python: `RestCatalogServer`, `HiveMetastore`."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from ..spark.jars import spark_jars
from ..spark.java import find_java

__all__ = ["JavaProcess"]

_STOP_TIMEOUT_S = 15
_LOG_BYTES = 1 << 20


class JavaProcess:
    """Java with Spark's jars and, before them, those of the directories given. It ends with this process at the latest.

    Spark's jars lack little: an HTTP server, Hadoop and Hive are among them.
    """

    def __init__(self, *directories: Path) -> None:
        self._directories = directories
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: Any = None
        self._log: Any = None

    @property
    def jvm(self) -> Any:
        """Its classes, by their full names."""
        return self._gateway.jvm

    def start(self) -> None:
        spark = spark_jars()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        port, token, self._process = launch_gateway(
            jarpath=str(next(spark.glob("py4j-*.jar"))),
            classpath=os.pathsep.join(f"{directory}/*" for directory in (*self._directories, spark)),
            javaopts=["-XX:TieredStopAtLevel=1", "-Xmx256m"],
            java_path=str(find_java().path),
            die_on_exit=True,
            enable_auth=True,
            redirect_stderr=self._log,
            return_proc=True,
        )
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
        )

    def said(self) -> str:
        """The end of its log."""
        if self._log is None:
            return ""
        return os.pread(self._log.fileno(), _LOG_BYTES, 0).decode(errors="replace")[-2000:]

    def stop(self) -> None:
        if self._gateway is not None:
            self._gateway.close()
        process, self._process, self._gateway = self._process, None, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        log, self._log = self._log, None
        if log is not None:
            log.close()
