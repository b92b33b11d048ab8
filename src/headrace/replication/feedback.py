"""Which position may be confirmed to Postgres. What is confirmed, the server forgets: no optimism here."""

from __future__ import annotations

from dataclasses import dataclass

from ..lsn import INVALID_LSN, Lsn

__all__ = ["Positions", "confirmable"]


@dataclass(frozen=True, slots=True)
class Positions:
    """How far each stage is. A position promises everything that committed before it."""

    spooled: Lsn = INVALID_LSN
    """Published in the spool (fsynced, if the spool is durable)."""
    covered: Lsn = INVALID_LSN
    """`spooled`, or further: a keepalive told that nothing lies in between, and the spool has recorded that."""
    applied: Lsn = INVALID_LSN
    """Durable at the destination, for every table."""


def confirmable(positions: Positions, *, durable_spool: bool) -> Lsn:
    """The highest position Postgres may drop its WAL before.

    With a durable spool that is what the spool covers. Without one it is what every table has applied; and when all
    that was spooled is applied, what the spool covers: so an idle slot follows the server however quiet its tables are.
    """
    if durable_spool or positions.applied >= positions.spooled:
        return positions.covered
    return positions.applied
