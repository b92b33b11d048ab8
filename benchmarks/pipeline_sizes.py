"""How much `make bench` does: in full, and as little as shows that it works."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Sizes"]


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 3
    """Of each comparison, ours and the peer's in turn; medians count."""
    warm_ups: int = 2
    """Java compiles what it runs often, with most of a core, for the first few rounds."""
    warm_tables: int = 40
    """Small tables copied by both sides beforehand: what runs once per table is compiled only after many tables."""
    copy_rounds: int = 9
    copy_warm_ups: int = 5
    """More than of others: a copy is so few calls of Java that Java still compiles them after many."""
    copy_scale: float = 1.0
    """2.1 million rows times this."""
    backlog: int = 2_000_000
    merge_rows: int = 1_000_000
    merge_updates: tuple[int, ...] = (100, 10_000)
    merge_batches: int = 7
    fresh_seconds: float = 60
    fresh_warm_up_s: float = 20
    fresh_changes_per_s: int = 1_000
    fresh_rows: int = 100_000
    """Rows of each table before the changes begin."""
    growth_rows: tuple[int, ...] = (1_000_000, 10_000_000)
    growth_tables: tuple[int, ...] = (1, 8, 50)
    growth_changes: int = 1_000
    """Changes of one batch, of all its tables together."""
    destination_scale: float = 0.5
    """Of the copy, of which each destination has its rounds."""
    destination_backlog: int = 500_000
    destination_seconds: float = 30


FULL = Sizes()
QUICK = Sizes(
    rounds=1,
    warm_ups=0,
    warm_tables=0,
    copy_rounds=1,
    copy_warm_ups=0,
    copy_scale=0.01,
    backlog=21_000,
    merge_rows=10_000,
    merge_updates=(100,),
    merge_batches=1,
    fresh_seconds=2,
    fresh_warm_up_s=1,
    fresh_changes_per_s=200,
    fresh_rows=1_000,
    growth_rows=(1_000, 2_000),
    growth_tables=(1, 2),
    growth_changes=100,
    destination_scale=0.005,
    destination_backlog=2_100,
    destination_seconds=2,
)
