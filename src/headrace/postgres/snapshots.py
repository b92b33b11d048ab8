"""Snapshots: which transactions a copy has seen, and holding one still while many connections read under it.

The hand-off between initial copy and stream rests on this file: a change is applied iff its transaction is not visible
in the snapshot its rows were copied under. The slot must exist before the snapshot is taken; nothing else is needed.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql

from ..config.connection import PgConnectionConfig
from ..errors import SourceUnsupported
from ..lsn import Lsn
from ..schema import TableName
from .connection import COPYING, connect, connect_replication
from .translation import translated_errors
from .version import ServerVersion

__all__ = ["ExportedSnapshot", "Snapshot", "current_snapshot", "export_snapshot", "snapshot_session"]

_TEXT = re.compile(r"(\d+):(\d+):((?:\d+(?:,\d+)*)?)")
_USE_EXPORT = "take the snapshot with export_snapshot, which uses a temporary slot on a standby"
# The statement's snapshot is there before its functions run, so the LSN lies behind every commit that it shows.
_EXPORT = """
SELECT pg_catalog.pg_export_snapshot(), pg_catalog.pg_current_snapshot()::text,
       (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
        ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text
"""
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`pg_current_snapshot()`: 64-bit transaction ids. All below `xmin` are over, none from `xmax` on was."""

    xmin: int
    xmax: int
    xip: tuple[int, ...] = ()
    """In progress when the snapshot was taken, ascending."""

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Read Postgres's text form, `xmin:xmax:xip,…`; raises ValueError for anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            msg = f"not a snapshot: {text!r} (expected xmin:xmax:xip,… as in 10:20:10,14)"
            raise ValueError(msg)
        xip = tuple(sorted(int(part) for part in match[3].split(",") if part))
        return cls(int(match[1]), int(match[2]), xip)

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.xip))}"

    def visible(self, xids: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which of these transactions' changes the snapshot shows, provided they committed.

        `xids` are top-level ids as pgoutput's Begin has them, 32 bits; each is taken to be the one nearest to the
        snapshot, as Postgres itself does: ids further than 2^31 apart never coexist.
        """
        full = self._widened(xids)
        seen = full < self.xmax
        if self.xip:
            seen &= ~np.isin(full, np.array(self.xip, dtype=np.int64))
        return seen

    def _widened(self, xids: NDArray[np.uint32]) -> NDArray[np.int64]:
        distance = (xids - np.uint32(self.xmax & 0xFFFFFFFF)).view(np.int32)
        full: NDArray[np.int64] = distance.astype(np.int64) + self.xmax
        # In the first epoch there is no id before 0: such a one is far ahead, not behind.
        full[full < 0] += 1 << 32
        return full


@dataclass(frozen=True, slots=True)
class ExportedSnapshot:
    """A snapshot that other sessions can adopt with `SET TRANSACTION SNAPSHOT` for as long as `connection` holds it."""

    name: str
    snapshot: Snapshot
    lsn: Lsn
    """Where WAL ended right after the snapshot was taken: what it shows was committed before."""
    connection: psycopg.Connection[Any]


def current_snapshot(connection: psycopg.Connection[Any]) -> Snapshot:
    """The snapshot of the connection's transaction.

    Raises SourceUnsupported on a standby: its own snapshot names no running transactions, so those would count as seen
    and their changes be lost.
    """
    query = "SELECT pg_catalog.pg_current_snapshot()::text, pg_catalog.pg_is_in_recovery()"
    with translated_errors("cannot read the snapshot"):
        row = connection.execute(query).fetchone()
    assert row is not None
    if row[1]:
        raise SourceUnsupported("a standby's own snapshot does not tell running transactions apart", hint=_USE_EXPORT)
    return Snapshot.parse(row[0])


@contextmanager
def export_snapshot(
    config: PgConnectionConfig,
    *,
    lock: Sequence[TableName] = (),
    pipeline: str | int | None = None,
    session: psycopg.Connection[Any] | None = None,
) -> Iterator[ExportedSnapshot]:
    """Hold a REPEATABLE READ, READ ONLY transaction and export its snapshot until the block ends.

    `session` is one of `snapshot_session` that holds none; without it, a connection is opened for the block.
    The tables in `lock`, with their partitions, are locked (ACCESS SHARE) before the snapshot is taken. Without it an
    ALTER TABLE that rewrites one between snapshot and first read makes it look empty there. Waits for such an ALTER,
    but not for long: SourceLockTimeout.
    Others who read under the snapshot must give their own lock a timeout: one that queues behind an ALTER, which waits
    for us, would wait as long as we do.

    On a standby the snapshot comes from a temporary slot, whose creation waits for the primary's next
    running-transactions record (`SELECT pg_log_standby_snapshot()` on the primary brings it at once).
    """
    with ExitStack() as stack:
        connection = session or stack.enter_context(snapshot_session(config, pipeline=pipeline))
        stack.callback(_end, connection)
        with translated_errors("cannot export a snapshot"):
            standby = _in_recovery(connection)
            connection.execute(_BEGIN)
            if lock:
                # LOCK TABLE takes no snapshot of its own: the one we hold is taken, or adopted, by what follows.
                tables = sql.SQL(", ").join(sql.Identifier(table.schema, table.name) for table in lock)
                connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(tables))
            if standby:
                _adopt_slot_snapshot(connection, config, pipeline)
            row = connection.execute(_EXPORT).fetchone()
            assert row is not None
        yield ExportedSnapshot(row[0], Snapshot.parse(row[1]), Lsn.parse(row[2]), connection)


def snapshot_session(config: PgConnectionConfig, *, pipeline: str | int | None = None) -> psycopg.Connection[Any]:
    """A connection that can hold snapshots, one after the other. Raises SourceError."""
    connection = connect(config, "snapshot", pipeline=pipeline, timeouts=COPYING)
    try:
        with translated_errors("cannot export a snapshot"):
            # Held for hours by design; the setting is new in 17, so it is set where it exists.
            connection.execute(
                "SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings "
                "WHERE name = 'transaction_timeout'"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _end(connection: psycopg.Connection[Any]) -> None:
    # One that broke has no transaction any more.
    with suppress(psycopg.Error):
        connection.rollback()


def _in_recovery(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone()
    return bool(row and row[0])


def _adopt_slot_snapshot(
    connection: psycopg.Connection[Any], config: PgConnectionConfig, pipeline: str | int | None
) -> None:
    """Make a slot's snapshot that of the transaction, which has only locks so far: adopting must precede any query."""
    version = ServerVersion.of(connection)
    version.require(version.decoding_on_standby, "copying from a standby", 16)
    slot = f"headrace_snapshot_{secrets.token_hex(8)}"
    with connect_replication(config, "snapshot", pipeline=pipeline) as walsender:
        create = f'CREATE_REPLICATION_SLOT "{slot}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT'
        row = walsender.execute(create.encode()).fetchone()
        assert row is not None
        # Adopted before the walsender runs anything else or ends: its export lives no longer than that.
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(row[2]))
