"""The values a copy consists of: ranges that know their own SQL, the plan that lists them, the choices behind it.

A range needs no catalog and no connection to be understood: it is pickled, sent to a task, and read there.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..schema import ReplicatedTableSchema, TableName, quote_identifier

__all__ = ["Bounds", "CopyOptions", "CopyPlan", "CopyRange", "CtidBounds", "KeyBounds"]


@dataclass(frozen=True, slots=True)
class CtidBounds:
    """Blocks of the heap: from `first` on, before `end`; None is open."""

    first: int | None = None
    end: int | None = None

    def condition(self) -> str | None:
        parts = []
        if self.first is not None:
            parts.append(f"ctid >= '({self.first},0)'::pg_catalog.tid")
        if self.end is not None:
            parts.append(f"ctid < '({self.end},0)'::pg_catalog.tid")
        return " AND ".join(parts) or None


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Keys from `lower` on, before `upper`, in Postgres's text of the key's type; None is open."""

    column: str
    type: str
    """The name of a type of pg_catalog."""
    lower: str | None = None
    upper: str | None = None

    def condition(self) -> str | None:
        parts = []
        if self.lower is not None:
            parts.append(f"{quote_identifier(self.column)} >= {self._literal(self.lower)}")
        if self.upper is not None:
            parts.append(f"{quote_identifier(self.column)} < {self._literal(self.upper)}")
        return " AND ".join(parts) or None

    def _literal(self, value: str) -> str:
        return "'" + value.replace("'", "''") + f"'::pg_catalog.{quote_identifier(self.type)}"


Bounds = CtidBounds | KeyBounds


@dataclass(frozen=True, slots=True)
class CopyRange:
    """A part of a table that one task reads in one transaction."""

    relation: TableName
    """Where the rows lie: the table, a leaf of its partition tree, or the root of the tree for key ranges."""
    columns: tuple[str, ...]
    row_filter: str | None = None
    """The publication's, as SQL."""
    bounds: Bounds | None = None
    """None is the whole relation."""
    descendants: bool = False
    """Whether the rows of partitions are read too."""
    estimated_rows: int | None = None
    """None when the server has no statistics."""
    estimated_bytes: int = 0

    def copy_sql(self) -> str:
        """The query whose result is the range, columns in table order."""
        columns = ", ".join(quote_identifier(column) for column in self.columns)
        source = self.relation.quoted if self.descendants else f"ONLY {self.relation.quoted}"
        conditions = [
            self.bounds.condition() if self.bounds else None,
            f"({self.row_filter})" if self.row_filter else None,
        ]
        where = " AND ".join(condition for condition in conditions if condition)
        return f"SELECT {columns} FROM {source}" + (f" WHERE {where}" if where else "")


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """All ranges of a table, largest first: every row is in exactly one of them."""

    schema: ReplicatedTableSchema
    ranges: tuple[CopyRange, ...]
    one_snapshot: bool
    """True: all ranges must be read under one exported snapshot. False: each takes a snapshot of its own."""


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How a table is cut."""

    rows_per_range: int = 250_000
    bytes_per_range: int = 64 << 20
    """Of the table and its TOAST table; whichever of the two limits is reached first cuts. Large enough that a
    connection's start does not count, small enough that a failed range is no loss."""
    max_ranges: int = 1_024
    """Beyond it ranges grow instead. Every leaf of a partitioned table has at least one."""
    key_ranges_over_bytes: int | None = 10 << 30
    """Tables larger than this are cut by key, where their key allows it; None never. A copy under one snapshot holds
    back vacuum on the source for as long as it takes, and starts over after a crash."""
