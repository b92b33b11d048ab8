"""The figures of `make bench`: what they are held to, and how they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["BARS", "Bar", "judged", "show"]


@dataclass(frozen=True, slots=True)
class Bar:
    """What a figure must reach, or must not exceed. `part` is the percentile that counts."""

    at_least: float | None = None
    at_most: float | None = None
    part: str | None = None

    def holds(self, figure: Any) -> bool:
        value = figure if self.part is None else figure[self.part]
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        limit = f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"
        return f"{self.part} {limit}" if self.part else limit


BARS = {
    "copy_iceberg_vs_psql_copy": Bar(at_least=0.6),
    "copy_iceberg_vs_jdbc": Bar(at_least=2),
    "copy_cpu_vs_jdbc": Bar(at_most=0.6),
    "freshness_8_tables_s": Bar(at_most=6, part="p50"),
    "freshness_1_table_s": Bar(at_most=2.5, part="p50"),
    "freshness_append_s": Bar(at_most=1.5, part="p50"),
}

MEANINGS = {
    "copy_iceberg_vs_psql_copy": "initial copy, rows/s beside psql \\copy to /dev/null over one connection",
    "copy_iceberg_vs_jdbc": "the same beside Spark's JDBC reader into Iceberg, same partitions",
    "copy_cpu_vs_jdbc": "its CPU of all processes beside the JDBC reader's",
    "stream_iceberg_vs_pg_recvlogical": "drain of a backlog, changes/s beside pg_recvlogical to /dev/null",
    "merge_vs_spark_merge": "updates into a large table: Spark MERGE's seconds over ours, our CPU over its",
    "delta_merge_vs_spark_merge": "the same with Delta, deletion vectors on both sides",
    "freshness_8_tables_s": "source commit to visible, 8 tables, updates, inserts and deletes",
    "freshness_1_table_s": "the same, one table",
    "freshness_append_s": "the same, one table, inserts only",
    "batch_cost_by_rows": "a batch of updates of random keys, by rows of the table",
    "batch_cost_by_tables": "as many updates, by number of tables",
    "destinations": "each destination: initial copy, drain of a backlog, commit to durable over 8 tables",
    "peak_memory_mb": "largest resident memory of one process, in the whole run",
}


def judged(result: dict[str, Any]) -> dict[str, Any]:
    """Every bar of a figure that was measured, and whether it holds."""
    return {name: {"bar": str(bar), "holds": bar.holds(result[name])} for name, bar in BARS.items() if name in result}


def show(result: dict[str, Any], console: Console | None = None) -> None:
    table = Table(title="Headrace into Iceberg, beside the field", title_justify="left")
    for column in ("figure", "value", "bar", "holds", "what it is"):
        table.add_column(column, overflow="fold")
    bars = result.get("bars", {})
    for name, meaning in MEANINGS.items():
        if name not in result:
            continue
        bar = bars.get(name)
        holds = "" if bar is None else "[green]yes[/]" if bar["holds"] else "[bold red]no[/]"
        table.add_row(name, _text(result[name]), "" if bar is None else bar["bar"], holds, meaning)
    (console or Console(width=160)).print(table)


def _text(value: Any) -> str:
    if not isinstance(value, dict):
        return f"{value:g}" if isinstance(value, float) else str(value)
    inner = [f"{name}: {_text(part)}" for name, part in value.items()]
    nested = any(isinstance(part, dict) for part in value.values())
    return ("\n" if nested else ", ").join(inner)
