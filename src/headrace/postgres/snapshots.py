"""Snapshots: which transactions a copy has seen, and holding one still while many connections read under it.

The hand-off between initial copy and stream rests on this file: a change is applied iff its transaction is not visible
in the snapshot its rows were copied under. The slot must exist before the snapshot is taken; nothing else is needed.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql

from ..config.connection import PgConnectionConfig
from ..errors import SourceUnsupported
from .connection import UNBOUNDED, connect, connect_replication
from .translation import translated_errors
from .version import ServerVersion

__all__ = ["ExportedSnapshot", "Snapshot", "current_snapshot", "export_snapshot"]

_TEXT = re.compile(r"(\d+):(\d+):((?:\d+(?:,\d+)*)?)")
_USE_EXPORT = "take the snapshot with export_snapshot, which uses a temporary slot on a standby"
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
def export_snapshot(config: PgConnectionConfig, *, pipeline: str | int | None = None) -> Iterator[ExportedSnapshot]:
    """Hold a REPEATABLE READ, READ ONLY transaction and export its snapshot until the block ends.

    On a standby the snapshot comes from a temporary slot, whose creation waits for the primary's next
    running-transactions record (`SELECT pg_log_standby_snapshot()` on the primary brings it at once).
    """
    with connect(config, "snapshot", pipeline=pipeline, timeouts=UNBOUNDED) as connection:
        with translated_errors("cannot export a snapshot"):
            # Held for hours by design; the setting is new in 17, so it is set where it exists.
            connection.execute(
                "SELECT set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout'"
            )
            if _in_recovery(connection):
                _adopt_slot_snapshot(connection, config, pipeline)
            else:
                connection.execute(_BEGIN)
            row = connection.execute("SELECT pg_export_snapshot(), pg_current_snapshot()::text").fetchone()
            assert row is not None
        yield ExportedSnapshot(row[0], Snapshot.parse(row[1]), connection)


def _in_recovery(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone()
    return bool(row and row[0])


def _adopt_slot_snapshot(
    connection: psycopg.Connection[Any], config: PgConnectionConfig, pipeline: str | int | None
) -> None:
    version = ServerVersion.of(connection)
    version.require(version.decoding_on_standby, "copying from a standby", 16)
    slot = f"headrace_snapshot_{secrets.token_hex(8)}"
    with connect_replication(config, "snapshot", pipeline=pipeline) as walsender:
        create = f'CREATE_REPLICATION_SLOT "{slot}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT'
        row = walsender.execute(create.encode()).fetchone()
        assert row is not None
        # Adopted before the walsender runs anything else or ends: its export lives no longer than that.
        connection.execute(_BEGIN)
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(row[2]))
