"""One attempt to change a table: committed when its block ends, and what it wrote removed if it does not."""

from __future__ import annotations

from types import TracebackType

from .contract import LakeTable
from .files import Written
from .leftovers import PendingFiles
from .operations import Operation
from .record import Record

__all__ = ["Attempt"]


class Attempt:
    """Use it in a `with` block: what is added to it is committed at the end, with the record.

    Nothing is committed where nothing changed.
    """

    def __init__(self, table: LakeTable, record: Record) -> None:
        self._table, self._record = table, record
        self._operations: list[Operation] = []
        self._pending = PendingFiles(table.layout)
        self.planned = table.files()
        self.committed = False
        """Whether the block's end committed something."""

    def add(self, operation: Operation) -> None:
        self._operations.append(operation)
        self._pending.add(operation.written)

    @property
    def written(self) -> list[Written]:
        return self._pending.written

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._pending.__exit__(kind, error, trace)
        elif any(not operation.is_nothing for operation in self._operations):
            with self._pending:
                self._table.commit(self.planned, self._operations, self._record)
            self.committed = True
