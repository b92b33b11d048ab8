"""The oracle for a pipeline: what a slot of its own, read by Postgres's own functions, says each table underwent."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import psycopg

from headrace.lsn import Lsn
from headrace.pgoutput.decoder import decode
from headrace.pgoutput.messages import Begin, Delete, Insert, Truncate, Update
from headrace.postgres.snapshots import Snapshot
from headrace.stores.contract import PipelineStore
from headrace.testing.durable_destination import DurableDestination
from pipelining import PUBLICATION

__all__ = ["Oracle"]

Connection = psycopg.Connection[Any]
Change = tuple[Lsn, int, str]
"""Commit LSN, transaction id, and the operation's letter."""

_GET = """
SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)
"""


class Oracle:
    """Make it before the pipeline starts: it knows all changes from then on."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._slot = f"oracle_{connection.info.dbname}"
        self._known: dict[int, list[Change]] = defaultdict(list)
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self._slot,))

    def changes(self) -> dict[int, list[Change]]:
        """By table, in the order of commits. Each is asked for once, and remembered."""
        begin: Begin | None = None
        for (data,) in self._connection.execute(_GET, (self._slot, PUBLICATION)):
            message = decode(bytes(data))
            if isinstance(message, Begin):
                begin = message
            elif isinstance(message, (Insert, Update, Delete)):
                assert begin is not None
                self._known[message.relation_id].append((begin.final_lsn, begin.xid, type(message).__name__[0]))
            elif isinstance(message, Truncate):
                assert begin is not None
                for table in message.relation_ids:
                    self._known[table].append((begin.final_lsn, begin.xid, "T"))
        return self._known

    def check(self, store: PipelineStore, destination: DurableDestination, *tables: str) -> int:
        """Each table's log has every change that its copy has not, once and in order; returns how many there are."""
        changes = self.changes()
        checked = 0
        for table in tables:
            row = self._connection.execute("SELECT %s::regclass::oid::int", (table,)).fetchone()
            assert row is not None
            checked += _check(changes[row[0]], store, destination, table, row[0])
        return checked


def _check(
    changes: list[Change], store: PipelineStore, destination: DurableDestination, table: str, table_id: int
) -> int:
    log = destination.change_log(table)
    places = [(change.commit_lsn, change.tx_ordinal) for change in log]
    twice = sorted({place for place in places if places.count(place) > 1}) if len(set(places)) < len(places) else []
    assert not twice, f"{table}: {len(twice)} changes came twice, the first {twice[:3]}"
    assert places == sorted(places), f"{table}: changes came out of order"
    copy = store.get_copy(table_id)
    assert copy is not None
    start, records = copy
    logged = [(change.commit_lsn, change.xid, change.op) for change in log]
    if start.one_snapshot:
        seen = Snapshot.parse(records[0].snapshot)
        visible = seen.visible(np.array([change[1] for change in changes], dtype=np.uint32)).tolist()
        due = [change for change, copied in zip(changes, visible, strict=True) if not copied]
    else:
        # Before this position it depends on the change's key which snapshot counts; from here on all are due.
        due = [change for change in changes if change[0] >= start.snapshot_lsn]
        logged = [change for change in logged if change[0] >= start.snapshot_lsn]
    lost, extra = sorted(set(due) - set(logged)), sorted(set(logged) - set(due))
    assert logged == due, f"{table}: {len(lost)} lost {lost[:3]}, {len(extra)} never due {extra[:3]}"
    return len(logged)
