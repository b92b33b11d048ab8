"""What the destination asks of a table format: tables of files with deletion vectors, and where they are found.

Schemas are in Iceberg's JSON whatever the format: fields with ids, by which columns are known for life.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .files import TableLayout, Written
from .operations import Files, Operation
from .record import Record

if TYPE_CHECKING:
    from .fence import Fence
    from .plan import TablePlan

__all__ = ["LakeCatalog", "LakeTable", "NewTable", "Wrapping"]


@dataclass(frozen=True, slots=True)
class NewTable:
    """What a table is created from, all as Iceberg's JSON."""

    name: tuple[str, ...]
    schema: Mapping[str, Any]
    spec: Mapping[str, Any]
    sort_order: Mapping[str, Any]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What a table is to be for us once it is found."""

    plan: TablePlan
    key: tuple[str, ...] | None
    fence: Fence
    source_id: int = 0
    """The OID of the source's table; 0: it has none."""


class LakeTable(Protocol):
    """A table as it was when last refreshed. Used by one thread at a time.

    Every commit raises DestinationFenced if a later run of the pipeline has written to the table, and
    DestinationConflict if anybody has committed rows since it was planned: refresh, and plan again.
    """

    layout: TableLayout
    key: tuple[str, ...] | None
    keys: tuple[int, ...]

    @property
    def table_id(self) -> str: ...

    def refresh(self) -> None:
        """Raises TableGone."""

    def is_as_laid_out(self) -> bool: ...

    def properties(self) -> dict[str, str]: ...

    def last_field_id(self) -> int: ...

    def pinned_fields(self) -> frozenset[int]: ...

    def set_property(self, name: str, value: str) -> None: ...

    def record(self) -> Record: ...

    def files(self) -> Files: ...

    def commit(self, planned: Files, operations: Iterable[Operation], record: Record) -> None: ...

    def replace_files(self, planned: Files, written: Written) -> None: ...

    def add(self, written: Written, properties: Mapping[str, str | None]) -> None:
        """Files and properties (None: removed), or nothing; the record stays. Without files, too, it is conditional on
        the state of the table as of the last refresh.
        """


class LakeCatalog(Protocol):
    """From a name to a table. Thread-safe."""

    def load(self, name: tuple[str, ...]) -> Any | None:
        """What the format has of the table; None if there is none of this name."""

    def properties(self, found: Any, name: tuple[str, ...]) -> dict[str, str]: ...

    def wrapped(self, found: Any, wrapping: Wrapping) -> LakeTable: ...

    def create(self, table: NewTable) -> Any: ...

    def rename(self, old: tuple[str, ...], new: tuple[str, ...]) -> None: ...

    def names(self) -> list[tuple[str, ...]]: ...

    def drop(self, name: tuple[str, ...]) -> None: ...

    def close(self) -> None: ...
