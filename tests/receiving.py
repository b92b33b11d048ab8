"""A receiver at work on the test's own database, in this process, where faults can be injected."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from headrace.config.receiver import ReceiverConfig
from headrace.config.spool import SpoolConfig
from headrace.lsn import Lsn
from headrace.postgres.conninfo import parse_conninfo
from headrace.replication import Receiver, ReceiverStatus
from headrace.spool import Spool
from recvlogical import current_lsn, transactions_in_spool


class Running:
    """A receiver in a thread, and what it has said."""

    def __init__(self, config: ReceiverConfig) -> None:
        self.config = config
        self.statuses: list[ReceiverStatus] = []
        self.error: BaseException | None = None
        self._news = threading.Condition()
        self.receiver = Receiver(config, self._note)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _note(self, status: ReceiverStatus) -> None:
        with self._news:
            self.statuses.append(status)
            self._news.notify_all()

    def _run(self) -> None:
        try:
            self.receiver.run()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error
        with self._news:
            self._news.notify_all()

    @property
    def status(self) -> ReceiverStatus:
        return self.statuses[-1]

    def wait(self, until: Callable[[ReceiverStatus], bool], timeout: float = 120, *, since: int = 0) -> ReceiverStatus:
        """The first status of which it is true, among all that were told; or from the one numbered `since` on."""
        deadline = time.monotonic() + timeout
        with self._news:
            seen = since
            while True:
                for status in self.statuses[seen:]:
                    if until(status):
                        return status
                seen = len(self.statuses)
                if self.error is not None:
                    raise self.error
                assert time.monotonic() < deadline, f"never got there: {self.statuses[-5:]}"
                self._news.wait(0.1)

    def ended(self, timeout: float = 120) -> BaseException | None:
        self._thread.join(timeout)
        assert not self._thread.is_alive()
        return self.error

    def stop(self) -> None:
        self.receiver.stop()
        self._thread.join(120)
        assert not self._thread.is_alive()


class Source:
    """The test's database with a published table, a slot, and ways to look at the spool."""

    def __init__(self, conninfo: str, connection: psycopg.Connection[Any], root: Path) -> None:
        self.conninfo = conninfo
        self.connection = connection
        self.slot = f"slot_{connection.info.dbname}"
        self.root = root
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        connection.execute("CREATE TABLE unpublished (id bigserial, filler text)")
        connection.execute("CREATE PUBLICATION p FOR TABLE t")
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self.slot,))

    def config(self, conninfo: str | None = None, **spool: Any) -> ReceiverConfig:
        settings = {"uri": str(self.root / "spool"), "segment_age_ms": 20, **spool}
        return ReceiverConfig(
            pg_connection=parse_conninfo(conninfo or self.conninfo),
            publication_name="p",
            slot_name=self.slot,
            spool=SpoolConfig(**settings),
            status_interval_ms=50,
            reconnect_max_delay_ms=200,
        )

    @contextmanager
    def receiving(self, config: ReceiverConfig | None = None) -> Iterator[Running]:
        running = Running(config or self.config())
        try:
            yield running
        finally:
            running.stop()

    def insert(self, first: int, last: int, size: int = 10) -> Lsn:
        """One transaction of rows; where WAL ends afterwards."""
        rows = "SELECT n, repeat('v', %s) FROM generate_series(%s::int, %s::int) n"
        self.connection.execute(f"INSERT INTO t {rows}", (size, first, last))
        return current_lsn(self.connection)

    def spool(self) -> Spool:
        return Spool.open(self.config().spool)

    def inserted(self, spool: Spool | None = None) -> list[int]:
        """The keys of all inserts in the spool, in commit order; a transaction in it twice fails."""
        keys = []
        for messages in transactions_in_spool(spool or self.spool()).values():
            for message in messages:
                if message[:1] == b"I":
                    length = int.from_bytes(message[9:13], "big")
                    keys.append(int(message[13 : 13 + length]))
        return keys

    def confirmed(self) -> Lsn:
        query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
        row = self.connection.execute(query, (self.slot,)).fetchone()
        assert row is not None
        return Lsn.parse(row[0])

    def retained_bytes(self) -> int:
        """WAL the server keeps for the slot."""
        query = (
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) FROM pg_replication_slots WHERE slot_name = %s"
        )
        row = self.connection.execute(query, (self.slot,)).fetchone()
        assert row is not None
        return int(row[0])

    def active(self) -> bool:
        query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        row = self.connection.execute(query, (self.slot,)).fetchone()
        return row is not None and row[0]
