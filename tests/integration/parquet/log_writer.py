"""A process that writes a log, batch after batch, until it is killed: each batch adds a row and says so."""

from __future__ import annotations

import sys
from itertools import count

from headrace.config.parquet import ParquetConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.parquet import ParquetDestination
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import ORDERS
from headrace.testing.local_rows import Inserted, batch_of, local_rows, transaction

STEP = 10


def main(location: str) -> None:
    destination = ParquetDestination(ParquetConfig(location=location))
    destination.startup(DestinationContext(1, MemoryStore(), None))
    destination.claim()
    if not destination.copied_parts(ORDERS):
        destination.write_table_rows(ORDERS, local_rows(ORDERS, []), 0)
    applied = destination.applied_lsn(ORDERS) or Lsn(STEP)
    print("applied", applied // STEP, flush=True)
    for number in count(applied // STEP):
        row = {"id": number, "name": "x" * 100, "note": None}
        events = transaction(Lsn(number * STEP), Inserted(ORDERS, row))
        # Larger than what was applied: the first of a restart comes again with one that is there already.
        again = transaction(Lsn((number - 1) * STEP), Inserted(ORDERS, {**row, "id": number - 1}))
        destination.write_events(batch_of(again, events, end=Lsn((number + 1) * STEP)))
        print("written", number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
