from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.destinations import DestinationContext, SourceIdentity
from headrace.errors import DestinationConflict, DestinationError, DestinationFenced, DestinationRejected
from headrace.events import UNCHANGED
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.durable_destination import DurableDestination, LoggedChange, Seam
from headrace.testing.example_tables import ORDERS, VISITS, example_table
from headrace.testing.local_rows import (
    Altered,
    Deleted,
    Happening,
    Inserted,
    Truncated,
    Updated,
    batch_of,
    local_rows,
    transaction,
)


def order(key: int, note: object = "n") -> dict[str, object]:
    return {"id": key, "name": "a", "note": note}


@contextmanager
def opened(path: Path, before: Seam | None = None, after: Seam | None = None) -> Iterator[DurableDestination]:
    destination = DurableDestination(path / "d.db", before, after)
    yield destination
    destination.shutdown()


def write(destination: DurableDestination, *happenings: Happening, at: int = 100) -> None:
    destination.write_events(batch_of(transaction(Lsn(at), *happenings), end=Lsn(at + 10)))


def test_the_log_has_every_change_as_it_came(tmp_path: Path) -> None:
    with opened(tmp_path) as destination:
        destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(1), order(2)]), 0)
        write(
            destination,
            Inserted(ORDERS, order(3)),
            Updated(ORDERS, order(4, UNCHANGED), old={"id": 1}),
            Deleted(ORDERS, {"id": 3}),
            Truncated((ORDERS,)),
        )
        assert destination.change_log("public.orders") == [
            LoggedChange("I", Lsn(100), 0, 100, order(3), None, ()),
            LoggedChange("U", Lsn(100), 1, 100, {"id": 4, "name": "a"}, {"id": 1}, ("note",)),
            LoggedChange("D", Lsn(100), 2, 100, None, {"id": 3}, ()),
            LoggedChange("T", Lsn(100), 3, 100, None, None, ()),
        ]
        assert destination.copied("public.orders") == [order(1), order(2)]
        assert destination.rows("public.orders") == []
        assert destination.tables() == ["public.orders"]


def test_the_log_has_whole_old_rows_where_they_were_sent(tmp_path: Path) -> None:
    with opened(tmp_path) as destination:
        write(destination, Deleted(VISITS, {"page": "a", "seconds": None}))
        (change,) = destination.change_log("public.visits")
        assert change.old == {"page": "a", "seconds": None}


def test_what_was_written_is_there_when_opened_again(tmp_path: Path) -> None:
    with opened(tmp_path) as destination:
        destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(1)]), 3)
        write(destination, Inserted(ORDERS, order(2)))
    with opened(tmp_path) as destination:
        assert destination.rows(ORDERS.table.name) == [order(1), order(2)]
        assert destination.applied_lsn(ORDERS) == Lsn(110)
        assert destination.copied_parts(ORDERS) == {3}


def test_a_batch_that_overlaps_shows(tmp_path: Path) -> None:
    with opened(tmp_path) as destination:
        first, second = (transaction(Lsn(i), Inserted(ORDERS, order(i))) for i in (100, 200))
        destination.write_events(batch_of(first, end=Lsn(150)))
        destination.write_events(batch_of(first, second, end=Lsn(250)))
        assert [int(change.commit_lsn) for change in destination.change_log("public.orders")] == [100, 100, 200]
        assert [row["id"] for row in destination.rows("public.orders")] == [100, 100, 200]


def test_an_unknown_table_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as destination, pytest.raises(KeyError, match=r"public\.nothing"):
        destination.rows("public.nothing")


CALLS: dict[str, Callable[[DurableDestination], object]] = {
    "write_table_rows": lambda d: d.write_table_rows(ORDERS, local_rows(ORDERS, [order(2)]), 1),
    "write_events": lambda d: write(d, Inserted(ORDERS, order(2))),
    "drop_table_for_copy": lambda d: d.drop_table_for_copy(ORDERS),
}


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("committed", [False, True])
def test_a_seam_can_raise_before_and_after_a_commit(tmp_path: Path, method: str, committed: bool) -> None:
    seen: list[tuple[str, str]] = []

    def seam(method: str, table: str) -> None:
        seen.append((method, table))
        raise DestinationConflict(method)

    with opened(tmp_path) as destination:
        destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(1)]), 0)
    with opened(tmp_path, **{"after" if committed else "before": seam}) as destination:
        with pytest.raises(DestinationConflict, match=method):
            CALLS[method](destination)
        assert seen == [(method, "public.orders")]
        changed = {"write_table_rows": [1, 2], "write_events": [1, 2], "drop_table_for_copy": None}[method]
        assert ids(destination) == (changed if committed else [1])
        assert destination.applied_lsn(ORDERS) == (Lsn(110) if committed and method == "write_events" else None)


def ids(destination: DurableDestination) -> list[int] | None:
    return [row["id"] for row in destination.rows("public.orders")] if destination.tables() else None


KILLED = """
import os, signal, sys
from headrace.lsn import Lsn
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.example_tables import ORDERS
from headrace.testing.local_rows import Inserted, batch_of, transaction

def kill(method, table):
    if armed:
        os.kill(os.getpid(), signal.SIGKILL)

armed = False
destination = DurableDestination(sys.argv[1], **{sys.argv[2]: kill})
for i in range(1, 4):
    armed = i == 3
    happened = [Inserted(ORDERS, {"id": i}), Inserted(ORDERS, {"id": -i})]
    destination.write_events(batch_of(transaction(Lsn(i * 100), *happened), end=Lsn(i * 100 + 1)))
"""


@pytest.mark.parametrize(("seam", "last"), [("before_commit", 2), ("after_commit", 3)])
def test_it_survives_being_killed(tmp_path: Path, seam: str, last: int) -> None:
    result = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "d.db", seam], check=False)
    assert result.returncode == -signal.SIGKILL
    with opened(tmp_path) as destination:
        expected = [sign * i for i in range(1, last + 1) for sign in (1, -1)]
        assert ids(destination) == expected
        assert [change.row["id"] for change in destination.change_log("public.orders") if change.row] == expected
        assert destination.applied_lsn(ORDERS) == Lsn(last * 100 + 1)


def test_columns_are_renamed_dropped_and_added(tmp_path: Path) -> None:
    new = example_table(ORDERS.table.id, "orders", {"id": "int8", "title": "text"}, ("id",))
    with opened(tmp_path) as destination:
        destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(1), order(2)]), 0)
        write(destination, Altered(ORDERS, new), Updated(new, {"id": 2, "title": "b"}))
        assert destination.rows("public.orders") == [{"id": 1, "title": "a"}, {"id": 2, "title": "b"}]
        older = example_table(ORDERS.table.id, "orders", {"id": "int8", "title": "text", "extra": "int4"}, ("id",))
        write(destination, Altered(new, older), at=300)
        assert destination.rows("public.orders")[0] == {"id": 1, "title": "a", "extra": None}


def test_an_array_that_is_new_and_another_name(tmp_path: Path) -> None:
    columns = {"id": "int8", "name": "text", "note": "text", "numbers": "_int4"}
    new = example_table(ORDERS.table.id, "purchases", columns, ("id",))
    with opened(tmp_path) as destination:
        destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(1)]), 0)
        write(destination, Altered(ORDERS, new))
        assert destination.rows("public.purchases") == [{**order(1), "numbers": None}]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as destination, opened(tmp_path) as other:
        destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(1)]), 0)
        with other._reading() as connection:
            connection.execute("DROP TABLE change_log")
        with pytest.raises(DestinationError, match=r"public\.orders to .*d\.db"):
            write(destination, Inserted(ORDERS, order(2)))
        assert ids(destination) == [1]


def test_another_key_without_other_columns(tmp_path: Path) -> None:
    new = example_table(VISITS.table.id, "visits", {"page": "text", "seconds": "int4"}, ("page",))
    with opened(tmp_path) as destination:
        destination.write_table_rows(VISITS, local_rows(VISITS, [{"page": "a", "seconds": 1}]), 0)
        write(destination, Altered(VISITS, new), Deleted(new, {"page": "a"}))
        assert destination.rows("public.visits") == []


def test_a_seam_may_look_at_what_is_there(tmp_path: Path) -> None:
    seen: list[object] = []
    with opened(tmp_path, lambda method, table: seen.append(destination.applied_lsn(ORDERS))) as destination:
        write(destination, Inserted(ORDERS, order(1)))
    assert seen == [Lsn(110)]


def started(destination: DurableDestination, database: str = "shop") -> DurableDestination:
    source = SourceIdentity("7301", database)
    destination.startup(DestinationContext(1, MemoryStore(), None, source=source, run_id="r"))
    return destination


@pytest.mark.parametrize(
    "late",
    [
        lambda d: d.write_table_rows(ORDERS, local_rows(ORDERS, [order(9)]), 1),
        lambda d: write(d, Inserted(ORDERS, order(9)), at=900),
        lambda d: d.drop_table_for_copy(ORDERS),
        lambda d: d.drop_table(ORDERS),
    ],
)
def test_a_run_that_was_replaced_is_fenced(tmp_path: Path, late: Callable[[DurableDestination], None]) -> None:
    with opened(tmp_path) as first, opened(tmp_path) as second:
        started(first).claim()
        first.write_table_rows(ORDERS, local_rows(ORDERS, [order(1)]), 0)
        started(second)
        write(first, Inserted(ORDERS, order(2)))
        second.claim()
        with pytest.raises(DestinationFenced):
            late(first)
        assert second.applied_lsn(ORDERS) == Lsn(110)
        assert second.rows("public.orders") == [order(1), order(2)]


def test_nothing_is_written_before_a_claim(tmp_path: Path) -> None:
    with opened(tmp_path) as destination, pytest.raises(DestinationError, match="before it was claimed"):
        write(started(destination), Inserted(ORDERS, order(1)))


def test_a_pipeline_of_the_same_id_and_another_source_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as first, opened(tmp_path) as second:
        started(first).claim()
        started(second, "crm")
        with pytest.raises(DestinationRejected, match="belongs to database shop of system 7301, not to database crm"):
            second.claim()
        write(first, Inserted(ORDERS, order(1)))
