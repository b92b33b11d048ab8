"""Keeps one broken table from filling the spool for all."""

from __future__ import annotations

import structlog

from ..table_state import State
from .engine import Engine

__all__ = ["relieve_spool"]

_log = structlog.get_logger("headrace.spool")


def relieve_spool(engine: Engine) -> None:
    """When held segments outgrow the quota, give up those held for failed tables, the furthest behind first.

    Such a table is copied again when it comes back. Tables that are being copied or caught up keep theirs. Of several
    destinations only the one that is furthest behind gives up any.
    """
    if not engine.reception.is_last:
        return
    quota = engine.config.spool.quota_bytes
    failed = sorted(engine.tables.in_state(State.ERRORED), key=lambda table: table.position)
    for table in failed:
        if engine.batches.size() <= quota:
            return
        if not table.position or table.busy:
            continue
        _log.warning("the spool is full of a failed table's changes: it will be copied again", table=table.name)
        engine.tables.give_up(table)
        engine.announce()
        # What it held is released within moments; others are given up only if that is not enough by then.
        return
