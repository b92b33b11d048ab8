"""What a store remembers of initial copies, so that one goes on after a crash, and hand-off knows its snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..errors import StoreError
from ..lsn import Lsn
from .records import CopyRecord, CopyStart

__all__ = ["CopyStore", "require_begun"]


class CopyStore(Protocol):
    """The latest copy of each table. It stays known after the copy: the stream is filtered by its snapshots."""

    def begin_copy(self, table_id: int, start: CopyStart) -> None:
        """A copy begins. Replaces all that is known of an earlier one, its finished ranges too."""

    def get_copy(self, table_id: int) -> tuple[CopyStart, Sequence[CopyRecord]] | None:
        """The copy and its finished ranges by position, of one moment; None if none was begun."""

    def finish_copy_range(self, table_id: int, record: CopyRecord) -> None:
        """A range is durable at the destination. One at the same position is replaced. Raises StoreError if not begun.

        Raise the copy's LSN to the range's snapshot before: a crash between the two is then harmless.
        """

    def raise_copy_lsn(self, table_id: int, snapshot_lsn: Lsn) -> Lsn:
        """Move the copy's snapshot LSN forward, for a later snapshot; a lower one is ignored.

        Returns what is stored afterwards. Raises StoreError if no copy was begun.
        """


def require_begun(table_id: int, begun: bool) -> None:
    """A range of a copy that is not known must not be kept: nobody could tell which plan it belongs to."""
    if not begun:
        msg = f"no copy of table {table_id} has begun"
        raise StoreError(msg, hint="begin the copy anew: its table was deleted or prepared for another copy meanwhile")
