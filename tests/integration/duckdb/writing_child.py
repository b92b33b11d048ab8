"""Writes batches to a DuckDB file, in a process of its own, to be killed: `python writing_child.py FILE`.

Every batch has a row for each of two tables. Its number is told on stdout when it is written.
"""

from __future__ import annotations

import sys
from itertools import count

from headrace.config.duckdb import DuckDBConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.duckdb import DuckDBDestination
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table
from headrace.testing.local_rows import Inserted, batch_of, local_rows, transaction

TABLES = [example_table(21, "a", {"id": "int8"}, ("id",)), example_table(22, "b", {"id": "int8"}, ("id",))]


def main(path: str) -> None:
    destination = DuckDBDestination(DuckDBConfig(database=path))
    destination.startup(DestinationContext(1, MemoryStore(), None))
    destination.claim()
    applied = destination.applied_lsn(TABLES[0])
    if applied is None:
        for table in TABLES:
            destination.write_table_rows(table, local_rows(table, []), 0)
    for number in count(1 if applied is None else int(applied) // 100 + 1):
        changes = (Inserted(table, {"id": number}) for table in TABLES)
        destination.write_events(batch_of(transaction(Lsn(100 * number), *changes), end=Lsn(100 * number + 50)))
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
