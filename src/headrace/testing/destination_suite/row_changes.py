"""Inserts, updates, deletes, key changes, values that were not sent, and truncates, of tables with a key."""

from __future__ import annotations

from random import Random
from typing import Any

from ...destinations.contract import Durability
from ...events import UNCHANGED
from ...lsn import Lsn
from ..example_tables import LINES, ORDERS, VISITS
from ..local_rows import Altered, Deleted, Happening, Inserted, Truncated, Updated, batch_of, retried, transaction
from .example_rows import line, order, visit
from .site import Site, Values

__all__ = ["RowChangeSuite"]

_KEYS = 300
_CHANGES = 2_500


class RowChangeSuite:
    """Mixed into `DestinationSuite`, whose fixtures it uses."""

    def test_rows_are_inserted(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        site.changes(Lsn(100), Altered(None, ORDERS), Inserted(ORDERS, order(2)), Inserted(ORDERS, order(3, None, "")))
        site.assert_rows(ORDERS, [order(1), order(2), order(3, None, "")])

    def test_rows_are_updated(self, site: Site) -> None:
        site.copy(ORDERS, [order(i) for i in range(4)])
        site.changes(Lsn(100), Updated(ORDERS, order(1, "changed", "x")), Updated(ORDERS, order(3, None, None)))
        site.assert_rows(ORDERS, [order(0), order(1, "changed", "x"), order(2), order(3, None, None)])

    def test_rows_are_deleted(self, site: Site) -> None:
        site.copy(ORDERS, [order(i) for i in range(4)])
        site.changes(Lsn(100), Deleted(ORDERS, {"id": 2}), Deleted(ORDERS, {"id": 0}))
        site.assert_rows(ORDERS, [order(1), order(3)])

    def test_the_last_of_several_changes_of_a_row_wins(self, site: Site) -> None:
        site.copy(ORDERS, [order(1), order(2)])
        first = (Inserted(ORDERS, order(3)), Deleted(ORDERS, {"id": 1}), Updated(ORDERS, order(2, "b")))
        then = (Deleted(ORDERS, {"id": 3}), Inserted(ORDERS, order(1, "again")), Updated(ORDERS, order(2, "c")))
        site.write(Lsn(300), transaction(Lsn(100), *first), transaction(Lsn(200), *then))
        site.assert_rows(ORDERS, [order(1, "again"), order(2, "c")])

    def test_batches_follow_each_other(self, site: Site) -> None:
        site.copy(ORDERS, [order(0)])
        for i in range(1, 4):
            happened = (Inserted(ORDERS, order(i)), Updated(ORDERS, order(0, f"at {i}")))
            start = Lsn(i * 100 - 100)
            site.write(Lsn(i * 100), transaction(Lsn(i * 100 - 50), *happened), start=start)
        site.assert_rows(ORDERS, [order(0, "at 3"), order(1), order(2), order(3)])

    def test_a_key_of_several_columns(self, site: Site) -> None:
        site.copy(LINES, [line("a", 1, "1.00"), line("a", 2, "2.00"), line("b", 1, "3.00")])
        site.changes(
            Lsn(100),
            Updated(LINES, line("a", 2, "9.99")),
            Deleted(LINES, {"order": "b", "number": 1, "amount": None}),
            Inserted(LINES, line("b", 2, "4.00")),
            Updated(LINES, line("c", 1, "1.00"), old={"order": "a", "number": 1}),
        )
        site.assert_rows(LINES, [line("a", 2, "9.99"), line("b", 2, "4.00"), line("c", 1, "1.00")])

    def test_a_key_is_changed(self, site: Site) -> None:
        site.copy(ORDERS, [order(1), order(2)])
        site.changes(Lsn(100), Updated(ORDERS, order(5, "moved"), old={"id": 1}))
        site.assert_rows(ORDERS, [order(2), order(5, "moved")])

    def test_a_key_that_was_given_up_is_taken_by_another_row(self, site: Site) -> None:
        site.copy(ORDERS, [order(1, "a", "long a"), order(2, "b", "long b"), order(3, "c")])
        site.changes(
            Lsn(100),
            Deleted(ORDERS, {"id": 3}),
            Updated(ORDERS, order(3, "a", UNCHANGED), old={"id": 1}),
            Inserted(ORDERS, order(1, "new", "short")),
            Updated(ORDERS, order(1, "newer", UNCHANGED)),
        )
        site.assert_rows(ORDERS, [order(1, "newer", "short"), order(2, "b", "long b"), order(3, "a", "long a")])

    def test_two_rows_exchange_their_keys(self, site: Site) -> None:
        site.copy(ORDERS, [order(1, "a", "long a"), order(2, "b", "long b")])
        site.changes(
            Lsn(100),
            Updated(ORDERS, order(3, "a", UNCHANGED), old={"id": 1}),
            Updated(ORDERS, order(1, "b", UNCHANGED), old={"id": 2}),
            Updated(ORDERS, order(2, "a", UNCHANGED), old={"id": 3}),
        )
        site.assert_rows(ORDERS, [order(1, "b", "long b"), order(2, "a", "long a")])

    def test_unchanged_toast_values_are_kept(self, site: Site) -> None:
        site.copy(ORDERS, [order(1, "a", "long"), order(2, "b", None), order(3, "c", "long too")])
        site.changes(
            Lsn(100),
            Updated(ORDERS, order(1, "changed", UNCHANGED)),
            Updated(ORDERS, order(2, "changed", UNCHANGED)),
            Updated(ORDERS, order(7, "moved", UNCHANGED), old={"id": 3}),
            Inserted(ORDERS, order(4, "d", "new")),
            Updated(ORDERS, order(4, "changed", UNCHANGED)),
        )
        expected = [order(1, "changed", "long"), order(2, "changed", None), order(4, "changed", "new")]
        site.assert_rows(ORDERS, [*expected, order(7, "moved", "long too")])

    def test_truncate_takes_its_place_among_the_changes(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        site.copy(VISITS, [visit("a", 1)])
        happened = (Inserted(ORDERS, order(2)), Truncated((ORDERS, VISITS)), Inserted(ORDERS, order(3)))
        site.changes(Lsn(100), *happened)
        site.assert_rows(ORDERS, [order(3)])
        site.assert_rows(VISITS, [])

    def test_a_truncated_table_takes_the_same_keys_again(self, site: Site) -> None:
        site.copy(ORDERS, [order(1), order(2)])
        site.changes(Lsn(100), Truncated((ORDERS,)), Inserted(ORDERS, order(1, "b")), Truncated((ORDERS,)))
        site.assert_rows(ORDERS, [])
        site.changes(Lsn(300), Inserted(ORDERS, order(1, "c")))
        site.assert_rows(ORDERS, [order(1, "c")])

    def test_changes_that_a_task_wrote_twice_count_once(self, site: Site) -> None:
        site.copy(ORDERS, [order(i) for i in range(100)])
        changes: tuple[Happening, ...] = (
            *(Inserted(ORDERS, order(i)) for i in range(100, 120)),
            *(Updated(ORDERS, order(i, "new")) for i in range(10)),
            *(Deleted(ORDERS, {"id": i}) for i in range(10, 20)),
        )
        batch = batch_of(transaction(Lsn(100), *changes), end=Lsn(200), spark=site.spark)
        assert site.destination.write_events(retried(batch)) in Durability
        expected = [*(order(i, "new") for i in range(10)), *(order(i) for i in range(20, 120))]
        site.assert_rows(ORDERS, expected)
        site.changes(Lsn(300), Deleted(ORDERS, {"id": 119}))
        site.assert_rows(ORDERS, expected[:-1])

    def test_many_changes_of_many_rows(self, site: Site) -> None:
        rows: dict[int, Any] = {key: order(key, f"copied {key}", None) for key in range(_KEYS // 2)}
        site.copy(ORDERS, list(rows.values()))
        happened = _random_changes(rows)
        middle = len(happened) // 2
        site.write(Lsn(300), transaction(Lsn(100), *happened[:100]), transaction(Lsn(200), *happened[100:middle]))
        site.write(Lsn(500), transaction(Lsn(400), *happened[middle:]), start=Lsn(300))
        site.assert_rows(ORDERS, list(rows.values()))


def _random_changes(rows: dict[int, Any]) -> list[Happening]:
    """Changes as an application might make them; the rows are kept as they leave them."""
    chance, happened = Random(7), list[Happening]()  # noqa: S311 - a load, no secret
    for number in range(_CHANGES):
        key = chance.randrange(_KEYS)
        if key not in rows:
            rows[key] = order(key, f"inserted {number}", f"long {number}" if number % 3 else None)
            happened.append(Inserted(ORDERS, rows[key]))
        elif chance.random() < 0.3:
            del rows[key]
            happened.append(Deleted(ORDERS, {"id": key}))
        else:
            happened.append(_random_update(chance, rows, key, number))
    return happened


def _random_update(chance: Random, rows: dict[int, Any], key: int, number: int) -> Happening:
    old: Values = rows.pop(key)
    free = [other for other in range(_KEYS) if other not in rows]
    to = chance.choice(free) if chance.random() < 0.3 else key
    kept = chance.random() < 0.5
    rows[to] = order(to, f"updated {number}", old["note"] if kept else f"updated {number}")
    sent = {**rows[to], "note": UNCHANGED} if kept else rows[to]
    return Updated(ORDERS, sent, old=None if to == key else {"id": key})
