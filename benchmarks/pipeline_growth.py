"""How the cost of a batch grows with the size of the table, and with the number of tables that it concerns."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_batches import AT_ONCE, applied, medians, random_keys, tables, update
from pipeline_lakehouse import Lakehouse, streaming
from pipeline_sizes import Sizes

__all__ = ["run"]

# Rows of each table, where their number is what grows.
ROWS_OF_MANY = 10_000


def measure(lakehouse: Lakehouse, sizes: Sizes, what: str, *, rows: int, count: int) -> dict[str, float]:
    """Batches of updates of random keys, in `count` tables of so many rows."""
    namespace, names = f"{what}_{rows}_{count}", [f"t{n}" for n in range(count)]
    random, each = np.random.default_rng(5), sizes.growth_changes // count
    with (
        tables(lakehouse.server, names, rows) as (conninfo, connection),
        streaming(lakehouse, conninfo, namespace, **AT_ONCE) as pipeline,
    ):

        def change() -> None:
            with connection.transaction():
                for name in names:
                    update(connection, name, random_keys(random, rows, each))

        batches = [applied(pipeline, each * count, change) for _ in range(sizes.warm_ups + sizes.merge_batches)]
    lakehouse.forget(namespace)
    return medians(batches[sizes.warm_ups :])


def run(lakehouse: Lakehouse, sizes: Sizes) -> dict[str, Any]:
    by_rows, by_tables = {}, {}
    for rows in sizes.growth_rows:
        by_rows[str(rows)] = measure(lakehouse, sizes, "rows", rows=rows, count=1)
        print(f"  {rows} rows: {by_rows[str(rows)]}")
    for count in sizes.growth_tables:
        by_tables[str(count)] = measure(lakehouse, sizes, "tables", rows=ROWS_OF_MANY, count=count)
        print(f"  {count} tables: {by_tables[str(count)]}")
    return {
        "batch_cost_by_rows": by_rows,
        "batch_cost_by_tables": by_tables,
        "growth_rows": _growth(by_rows),
        "growth_tables": _growth(by_tables),
        "growth": {"changes_per_batch": sizes.growth_changes},
    }


def _growth(costs: dict[str, dict[str, float]]) -> float:
    """The last batch's seconds over the first's."""
    first, *_, last = costs.values()
    return round(last["batch_s"] / first["batch_s"], 2)
