"""The destination that the page shows is one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from headrace.destinations import Durability
from headrace.destinations.contract import DestinationContext
from headrace.destinations.instrumented import Instrumented
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import ORDERS
from headrace.testing.local_rows import Inserted, batch_of, local_rows, transaction

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "destinations.md"


def test_the_smallest_destination_works() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)
    made = names["CountingDestination"]()
    destination = Instrumented(made, lambda call: None)
    destination.startup(DestinationContext(1, MemoryStore(), None))
    destination.drop_table_for_copy(ORDERS)
    assert destination.write_table_rows(ORDERS, local_rows(ORDERS, []), 0) is Durability.DURABLE
    assert destination.write_events(batch_of(transaction(Lsn(1), Inserted(ORDERS, {"id": 1})), end=Lsn(2)))
    assert (destination.applied_lsn(ORDERS), destination.copied_parts(ORDERS)) == (None, None)
    destination.flush()
    destination.shutdown()
    assert made.events == 3
