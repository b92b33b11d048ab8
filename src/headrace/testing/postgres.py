"""A real Postgres server for tests: started in a second, on loopback, gone afterwards.

with PostgresServer(version=17) as server:
    with server.database() as conninfo: ...
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from .binaries import DEFAULT_VERSION, postgres_binaries

__all__ = ["PostgresServer", "free_port"]

PASSWORD = "headrace-test"  # noqa: S105 - of a server on loopback that lives as long as the test run

# Fast and logical. fsync off: a test server's disk dies with it; kill -9 of the *server process* is still survived.
SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "fsync": "off",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "max_wal_size": "4GB",
    "log_min_messages": "warning",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresServer:
    """A cluster in a temporary directory. Run as root, the server runs as `nobody`: Postgres refuses root."""

    def __init__(
        self,
        version: int = DEFAULT_VERSION,
        *,
        settings: Mapping[str, str] | None = None,
        initdb: Sequence[str] = ("--encoding=UTF8", "--locale=C"),
        data: Path | None = None,
    ) -> None:
        self.version = version
        self.bin = postgres_binaries(version) / "bin"
        self.port = 0
        self._settings = {**SETTINGS, **(settings or {})}
        self._initdb = initdb
        self.root = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
        self.data = self.root / "data"
        self._own(self.root)
        if data is not None:
            shutil.move(str(data), self.data)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PostgresServer:
        try:
            if not self.data.exists():
                self._create()
            # Not sooner: somebody else may take a port that nobody listens on.
            self.port = free_port()
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _as_server_user(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        nobody = pwd.getpwnam("nobody")
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def _own(self, path: Path) -> None:
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(path, nobody.pw_uid, nobody.pw_gid)

    def _create(self) -> None:
        password = self.root / "password"
        password.write_text(PASSWORD)
        self._own(password)
        self.run(
            "initdb", f"--pgdata={self.data}", "--username=postgres", "--auth=scram-sha-256", f"--pwfile={password}",
            "--no-sync", *self._initdb,
        )  # fmt: skip
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())
        with (self.data / "pg_hba.conf").open("a") as hba:
            hba.write("host replication all 127.0.0.1/32 scram-sha-256\n")

    def run(self, program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one of the server's own programs (psql, pg_basebackup, …) as the server's user."""
        return subprocess.run(
            [str(self.bin / program), *arguments],
            check=check, capture_output=True, text=True, cwd=self.root,
            env={**os.environ, "PGPASSWORD": PASSWORD, "LC_ALL": "C"}, **self._as_server_user(),
        )  # fmt: skip

    def start(self) -> None:
        """Start and wait until it answers."""
        log = self.root / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(self.bin / "postgres"), "-D", str(self.data), "-p", str(self.port)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.root,
                # A test run that dies must not leave a server behind: its own process group is ended by remove().
                start_new_session=True, **self._as_server_user(),
            )  # fmt: skip
        # pg_isready knows every way a start can go; 60 s covers crash recovery on a busy machine.
        for _ in range(600):
            if self._process.poll() is not None:
                msg = f"Postgres {self.version} did not start:\n{log.read_text()[-4000:]}"
                raise RuntimeError(msg)
            ready = self.run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-t", "1", check=False)
            if ready.returncode == 0:
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        msg = f"Postgres {self.version} did not answer within a minute:\n{log.read_text()[-4000:]}"
        raise RuntimeError(msg)

    def standby(self, *, slot: str | None = None, settings: Mapping[str, str] | None = None) -> PostgresServer:
        """A streaming standby of this running server; it starts when entered.

        With `slot` it reads through a physical slot of that name, which is created here.
        """
        copy = self.root / f"standby-{secrets.token_hex(4)}"
        self.run("pg_basebackup", "-d", self.conninfo(), "-D", str(copy), "-c", "fast", "--no-sync")
        # Written here, not by -R: that names every option of the newest libpq, which the server's own may not know.
        own = {"primary_conninfo": self.conninfo(), "hot_standby_feedback": "on", **(settings or {})}
        # A slot on a standby needs hot_standby_feedback, to keep the catalog rows that it reads.
        if slot is not None:
            own["primary_slot_name"] = slot
            with psycopg.connect(self.conninfo(), autocommit=True) as admin:
                admin.execute("SELECT pg_create_physical_replication_slot(%s, true)", (slot,))
        with (copy / "postgresql.auto.conf").open("a") as conf:
            conf.writelines("{} = '{}'\n".format(name, value.replace("'", "''")) for name, value in own.items())
        (copy / "standby.signal").touch()
        return PostgresServer(self.version, data=copy)

    def promote(self) -> None:
        """Make a primary of this running standby, on a new timeline; returns when it takes writes."""
        with psycopg.connect(self.conninfo(), autocommit=True) as admin:
            if admin.execute("SELECT pg_promote(true, 60)").fetchone() != (True,):
                msg = f"the standby was not promoted within a minute:\n{self.log()[-4000:]}"
                raise RuntimeError(msg)

    def upgraded(self, version: int) -> PostgresServer:
        """Stop this server and run pg_upgrade; return the server of the newer version, which starts when entered."""
        # From 18 on checksums are on by default, and pg_upgrade wants both alike.
        checksums = ("--no-data-checksums",) if version >= 18 > self.version else ()
        new = PostgresServer(version, settings=self._settings, initdb=(*self._initdb, *checksums))
        try:
            new._create()
            self.stop()
            new.run(
                "pg_upgrade", f"--old-bindir={self.bin}", f"--new-bindir={new.bin}", f"--old-datadir={self.data}",
                f"--new-datadir={new.data}", "--username=postgres", f"--socketdir={new.root}",
                f"--old-port={free_port()}", f"--new-port={free_port()}", "--no-sync",
            )  # fmt: skip
        except BaseException:
            new.remove()
            raise
        return new

    def save_data(self) -> Path:
        """Copy the data directory, with the server stopped meanwhile; return where the copy is, for `restore_data`."""
        saved = self.root / f"saved-{secrets.token_hex(4)}"
        self.stop()
        self._copy(self.data, saved)
        self.start()
        return saved

    def restore_data(self, saved: Path, *, new_timeline: bool = False) -> None:
        """Put a saved data directory back and start from it, as a restored disk snapshot does.

        With `new_timeline` it ends its recovery as a point-in-time recovery does: on a new timeline.
        """
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.data)
        self._copy(saved, self.data)
        if new_timeline:
            signal_file = self.data / "recovery.signal"
            signal_file.touch()
            self._own(signal_file)
            with (self.data / "postgresql.auto.conf").open("a") as conf:
                conf.write("restore_command = 'false'\n")
        self.start()

    def _copy(self, source: Path, target: Path) -> None:
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop: SIGINT is a fast shutdown, SIGQUIT an immediate one (crash recovery at the next start)."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.root, ignore_errors=True)

    def log(self) -> str:
        return (self.root / "log").read_text(errors="replace")

    def conninfo(self, dbname: str = "postgres", **more: str | int) -> str:
        fields: dict[str, Any] = {
            "host": "127.0.0.1", "port": self.port, "user": "postgres", "password": PASSWORD, "dbname": dbname, **more,
        }  # fmt: skip
        return make_conninfo("", **fields)

    @contextlib.contextmanager
    def database(self, prefix: str = "test") -> Iterator[str]:
        """A database of its own: its conninfo. Slots left in it are dropped with it."""
        name = f"{prefix}_{secrets.token_hex(4)}"
        with psycopg.connect(self.conninfo(), autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield self.conninfo(name)
        finally:
            with psycopg.connect(self.conninfo(), autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
                    "WHERE database = %s AND active_pid IS NOT NULL", (name,),
                )  # fmt: skip
                self._drop_slots(admin, name)
                admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _drop_slots(self, admin: psycopg.Connection[Any], name: str) -> None:
        slots = admin.execute("SELECT slot_name FROM pg_replication_slots WHERE database = %s", (name,)).fetchall()
        for (slot,) in slots:
            # A temporary one goes by itself, with the session that was ended.
            with (
                contextlib.suppress(psycopg.errors.UndefinedObject),
                psycopg.connect(self.conninfo(name, replication="database"), autocommit=True) as connection,
            ):
                connection.execute(sql.SQL("DROP_REPLICATION_SLOT {} WAIT").format(sql.Identifier(slot)))
