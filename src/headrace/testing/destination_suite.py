"""The conformance suite of destinations: what `headrace.destinations.contract` promises, as tests that any can run.

    class TestMyDestination(DestinationSuite):
        @pytest.fixture
        def destination(self, tmp_path):
            return MyDestination(tmp_path)

        def read(self, destination, table):
            return destination.select_all(table)

It is for destinations whose tables can be read back. A destination that needs Spark overrides the `spark` fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from ..destinations.batch import Changes, EventBatch, TableBatch
from ..destinations.contract import Destination, DestinationContext, Durability
from ..events import UNCHANGED, Event
from ..lsn import Lsn
from ..schema import ReplicatedTableSchema, TableName
from ..stores.memory import MemoryStore
from .canonical import canonical, canonical_text
from .example_tables import INSERTS_ONLY, LINES, ORDERS, SAMPLES, VISITS, example_table
from .local_rows import (
    Altered,
    Deleted,
    Happening,
    Inserted,
    LocalRows,
    Truncated,
    Updated,
    batch_of,
    batch_per_table,
    local_rows,
    transaction,
)
from .schema_change_suite import SchemaChangeSuite

__all__ = ["DestinationSuite", "Values"]

_Result = TypeVar("_Result")

Values = Mapping[str, Any]
"""A row by column name: Python values, or what `canonical` makes of them."""

_MANY = 2_500
"""Enough for rows to come in several parts."""
_REJECTED = {"key": '{"id":"1"}', "column": "day", "text": "infinity"}


class _Unreadable(Exception):
    """What reading fails with here: not an error of the destination."""


@dataclass(frozen=True, slots=True, eq=False)
class _Breaking(LocalRows):
    """Rows whose reading fails after the first part."""

    def dataframe(self) -> Any:
        raise _Unreadable

    def in_tasks(self, write: Callable[[Iterator[pa.RecordBatch]], _Result]) -> list[_Result]:
        write(self.batches())
        raise _Unreadable

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield next(iter(self.table.to_batches()))
        raise _Unreadable

    def together(self, function: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> _Breaking:
        return _Breaking(function(self.table))


class DestinationSuite(SchemaChangeSuite):
    """Subclass it with a `destination` fixture and `read`; every test starts with an empty place."""

    @pytest.fixture
    def destination(self) -> Destination:
        """A destination that was not started yet."""
        raise NotImplementedError

    def read(self, destination: Any, table: TableName) -> Sequence[Values]:
        """The rows that the destination has of a table, in any order; raises if there is no such table."""
        raise NotImplementedError

    def quarantined(self, destination: Any, table: TableName) -> Sequence[Values] | None:
        """What the quarantine has of a table, with the fields of `REJECTED_FIELDS`; None: there is no quarantine."""
        del destination, table
        return None

    @pytest.fixture
    def spark(self) -> Any:
        """A SparkSession, for destinations that need one."""
        return None

    @pytest.fixture
    def site(self, destination: Destination, spark: Any) -> Iterator[_Site]:
        destination.startup(DestinationContext(1, MemoryStore(), spark))
        yield _Site(self, destination, spark)
        destination.flush()
        destination.shutdown()

    def test_an_empty_table_is_created(self, site: _Site) -> None:
        site.copy(ORDERS, [])
        assert site.rows(ORDERS) == []

    def test_copied_rows_are_added(self, site: _Site) -> None:
        rows = [_order(i, f"n{i}", None) for i in range(_MANY)]
        site.copy(ORDERS, rows)
        assert site.rows(ORDERS) == _sorted(rows)

    def test_the_parts_of_a_copy_are_added_once_each(self, site: _Site) -> None:
        site.copy(ORDERS, [_order(1), _order(2)], part=0)
        site.copy(ORDERS, [_order(3)], part=7)
        site.destination.flush()
        parts = site.destination.copied_parts(ORDERS)
        # A destination that keeps no record of parts is never given one twice, but told to drop the table.
        if parts is not None:
            assert parts == {0, 7}
            site.copy(ORDERS, [_order(3)], part=7)
        assert site.destination.copied_parts(VISITS) in (None, frozenset())
        assert site.rows(ORDERS) == _sorted([_order(1), _order(2), _order(3)])

    def test_values_arrive_as_they_are(self, site: _Site) -> None:
        rows: list[Values] = [
            _sample(1, True, 0.1, 0.1, Decimal("-12345678.90"), b"\x00\xff", date(2024, 2, 29), [1, None], ["", None]),
            _sample(2, False, -0.5, 1e300, Decimal("0.00"), b"", date(1969, 12, 31), [], ["ä\n\"'"]),
            {name: 3 if name == "id" else None for name in _names(SAMPLES)},
        ]  # fmt: skip
        site.copy(SAMPLES, rows)
        site.write(Lsn(200), transaction(Lsn(100), *(Inserted(SAMPLES, {**row, "id": row["id"] + 10}) for row in rows)))
        expected = [{**row, "id": row["id"] + more} for row in rows for more in (0, 10)]
        assert site.rows(SAMPLES) == _sorted(expected)

    def test_changes_take_effect(self, site: _Site) -> None:
        site.copy(ORDERS, [_order(i) for i in range(4)])
        site.changes(
            Lsn(100),
            Altered(None, ORDERS),
            Inserted(ORDERS, _order(9, "new")),
            Updated(ORDERS, _order(1, "changed", "x")),
            Deleted(ORDERS, {"id": 2}),
            Updated(ORDERS, _order(3, None, None)),
        )
        expected = [_order(0), _order(1, "changed", "x"), _order(3, None, None), _order(9, "new")]
        assert site.rows(ORDERS) == _sorted(expected)

    def test_the_last_of_several_changes_of_a_row_wins(self, site: _Site) -> None:
        site.copy(ORDERS, [_order(1), _order(2)])
        first = (Inserted(ORDERS, _order(3)), Deleted(ORDERS, {"id": 1}), Updated(ORDERS, _order(2, "b")))
        then = (Deleted(ORDERS, {"id": 3}), Inserted(ORDERS, _order(1, "again")), Updated(ORDERS, _order(2, "c")))
        site.write(Lsn(300), transaction(Lsn(100), *first), transaction(Lsn(200), *then))
        assert site.rows(ORDERS) == _sorted([_order(1, "again"), _order(2, "c")])

    def test_a_key_of_several_columns(self, site: _Site) -> None:
        site.copy(LINES, [_line("a", 1, "1.00"), _line("a", 2, "2.00"), _line("b", 1, "3.00")])
        site.changes(
            Lsn(100), Updated(LINES, _line("a", 2, "9.99")), Deleted(LINES, {"order": "b", "number": 1, "amount": None})
        )
        assert site.rows(LINES) == _sorted([_line("a", 1, "1.00"), _line("a", 2, "9.99")])

    def test_a_changed_key(self, site: _Site) -> None:
        site.copy(ORDERS, [_order(1), _order(2)])
        site.changes(Lsn(100), Updated(ORDERS, _order(5, "moved"), old={"id": 1}))
        assert site.rows(ORDERS) == _sorted([_order(2), _order(5, "moved")])

    def test_two_rows_that_exchange_their_keys(self, site: _Site) -> None:
        site.copy(ORDERS, [_order(1, "a", "long a"), _order(2, "b", "long b")])
        site.changes(
            Lsn(100),
            Updated(ORDERS, _order(3, "a", UNCHANGED), old={"id": 1}),
            Updated(ORDERS, _order(1, "b", UNCHANGED), old={"id": 2}),
            Updated(ORDERS, _order(2, "a", UNCHANGED), old={"id": 3}),
        )
        assert site.rows(ORDERS) == _sorted([_order(1, "b", "long b"), _order(2, "a", "long a")])

    def test_unchanged_values_are_kept(self, site: _Site) -> None:
        site.copy(ORDERS, [_order(1, "a", "long"), _order(2, "b", None), _order(3, "c", "long too")])
        site.changes(
            Lsn(100),
            Updated(ORDERS, _order(1, "changed", UNCHANGED)),
            Updated(ORDERS, _order(2, "changed", UNCHANGED)),
            Updated(ORDERS, _order(7, "moved", UNCHANGED), old={"id": 3}),
            Inserted(ORDERS, _order(4, "d", "new")),
            Updated(ORDERS, _order(4, "changed", UNCHANGED)),
        )
        expected = [_order(1, "changed", "long"), _order(2, "changed", None), _order(4, "changed", "new")]
        assert site.rows(ORDERS) == _sorted([*expected, _order(7, "moved", "long too")])

    def test_a_truncate_takes_its_place_among_the_changes(self, site: _Site) -> None:
        site.copy(ORDERS, [_order(1)])
        site.copy(VISITS, [_visit("a", 1)])
        happened = (Inserted(ORDERS, _order(2)), Truncated((ORDERS, VISITS)), Inserted(ORDERS, _order(3)))
        site.changes(Lsn(100), *happened)
        assert site.rows(ORDERS) == _sorted([_order(3)])
        assert site.rows(VISITS) == []

    def test_a_batch_that_comes_again_has_no_effect(self, site: _Site) -> None:
        site.copy(ORDERS, [_order(1)])
        site.copy(VISITS, [_visit("a", 1)])
        happened = (
            Inserted(ORDERS, _order(2)),
            Updated(ORDERS, _order(5), old={"id": 1}),
            Inserted(VISITS, _visit("b", 1)),
        )
        for _ in range(2):
            site.changes(Lsn(100), *happened)
        assert site.rows(ORDERS) == _sorted([_order(2), _order(5)])
        assert site.rows(VISITS) == _sorted([_visit("a", 1), _visit("b", 1)])

    def test_batches_follow_each_other(self, site: _Site) -> None:
        site.copy(ORDERS, [])
        for i in range(1, 4):
            site.write(
                Lsn(i * 100), transaction(Lsn(i * 100 - 50), Inserted(ORDERS, _order(i))), start=Lsn(i * 100 - 100)
            )
            assert site.destination.applied_lsn(ORDERS) in (None, Lsn(i * 100))
        assert site.rows(ORDERS) == _sorted([_order(1), _order(2), _order(3)])

    def test_a_dropped_table_starts_anew(self, site: _Site) -> None:
        site.destination.drop_table_for_copy(ORDERS)
        site.copy(ORDERS, [_order(1)])
        site.copy(VISITS, [_visit("a", 1)])
        site.changes(Lsn(100), Inserted(ORDERS, _order(2)))
        for _ in range(2):
            site.destination.drop_table_for_copy(ORDERS)
        assert site.destination.applied_lsn(ORDERS) is None
        assert site.destination.copied_parts(ORDERS) in (None, frozenset())
        site.copy(ORDERS, [_order(3)])
        site.changes(Lsn(90), Inserted(ORDERS, _order(4)))
        assert site.rows(ORDERS) == _sorted([_order(3), _order(4)])
        assert site.rows(VISITS) == _sorted([_visit("a", 1)])

    def test_equal_rows_of_a_table_without_key(self, site: _Site) -> None:
        site.copy(VISITS, [_visit("a", 1)] * 3 + [_visit("b", None)] * 2)
        site.changes(
            Lsn(100),
            Deleted(VISITS, _visit("a", 1)),
            Updated(VISITS, _visit("c", 3), old=_visit("b", None)),
            Inserted(VISITS, _visit("a", 1)),
            Deleted(VISITS, _visit("a", 1)),
        )
        assert site.rows(VISITS) == _sorted([_visit("a", 1), _visit("a", 1), _visit("b", None), _visit("c", 3)])

    def test_equal_rows_of_a_table_that_is_only_inserted_into(self, site: _Site) -> None:
        site.copy(INSERTS_ONLY, [_visit("a", 1)])
        site.changes(Lsn(100), *[Inserted(INSERTS_ONLY, _visit("a", 1))] * 2)
        assert site.rows(INSERTS_ONLY) == _sorted([_visit("a", 1)] * 3)

    def test_rejected_values_reach_the_quarantine(self, site: _Site) -> None:
        row = {name: 1 if name == "id" else None for name in _names(SAMPLES)}
        streamed = {**_REJECTED, "key": '{"id":"2"}', "commit_lsn": 100, "tx_ordinal": 0}
        site.copy(SAMPLES, [row], rejected=[_REJECTED])
        site.write(Lsn(200), transaction(Lsn(100), Inserted(SAMPLES, {**row, "id": 2})), rejected=[streamed])
        assert site.rows(SAMPLES) == _sorted([row, {**row, "id": 2}])
        quarantined = self.quarantined(site.destination, SAMPLES.table.name)
        assert quarantined is None or _sorted(quarantined) == _sorted(
            [{**_REJECTED, "commit_lsn": None, "tx_ordinal": None}, streamed]
        )

    def test_what_cannot_be_read_leaves_nothing_behind(self, site: _Site) -> None:
        site.copy(ORDERS, [_order(1)])
        with pytest.raises(Exception):  # noqa: B017, PT011 - a destination may raise it as one of its own
            site.destination.write_table_rows(ORDERS, _Breaking(local_rows(ORDERS, [_order(2)]).table), 1)
        whole = batch_of(
            transaction(Lsn(100), Inserted(ORDERS, _order(3)), Truncated((ORDERS,)), Inserted(ORDERS, _order(4))),
            end=Lsn(200),
            spark=site.spark,
        )
        with pytest.raises(Exception):  # noqa: B017, PT011
            site.destination.write_events(_broken(whole))
        assert site.rows(ORDERS) == _sorted([_order(1)])
        assert site.destination.applied_lsn(ORDERS) is None
        assert site.destination.copied_parts(ORDERS) in (None, {0})
        site.destination.write_events(whole)
        assert site.rows(ORDERS) == _sorted([_order(4)])

    def test_tables_are_written_side_by_side(self, site: _Site) -> None:
        tables = [example_table(16_500 + i, f"t{i}", {"id": "int8"}, ("id",)) for i in range(4)]

        def fill(table: ReplicatedTableSchema) -> None:
            site.copy(table, [{"id": table.table.id}])
            if not site.destination.whole_batches:
                site.changes(Lsn(100), *(Inserted(table, {"id": i}) for i in range(10)))

        with ThreadPoolExecutor(len(tables)) as threads:
            list(threads.map(fill, tables))
        if site.destination.whole_batches:
            site.changes(Lsn(100), *(Inserted(table, {"id": i}) for i in range(10) for table in tables))
        for table in tables:
            assert site.rows(table) == _sorted([{"id": i} for i in (*range(10), table.table.id)])


@dataclass(frozen=True, slots=True)
class _Site:
    """A started destination, and how the suite writes to it and reads it."""

    suite: DestinationSuite
    destination: Destination
    spark: Any

    def rows(self, schema: ReplicatedTableSchema) -> list[str]:
        self.destination.flush()
        return _sorted(self.suite.read(self.destination, schema.table.name))

    def expected(self, rows: Sequence[Values]) -> list[str]:
        """Rows as `rows` has them."""
        return _sorted(rows)

    def copy(
        self, schema: ReplicatedTableSchema, rows: Sequence[Values], part: int = 0, rejected: Sequence[Values] = ()
    ) -> None:
        given = local_rows(schema, rows, rejected=rejected, spark=self.spark)
        assert self.destination.write_table_rows(schema, given, part) in Durability

    def changes(self, commit_lsn: Lsn, *happenings: Happening) -> None:
        """A batch of one transaction."""
        self.write(Lsn(commit_lsn + 100), transaction(commit_lsn, *happenings))

    def write(self, end: Lsn, *transactions: Sequence[Event], **given: Any) -> None:
        """As a pipeline does: all tables at once, or a batch for each."""
        batch = batch_of(*transactions, end=end, spark=self.spark, **given)
        parts = [batch] if self.destination.whole_batches else list(batch_per_table(batch))
        for part in parts:
            assert self.destination.write_events(part) in Durability


def _broken(batch: EventBatch) -> EventBatch:
    """The batch with a last step, and a last event, that cannot be read."""

    def broken_events() -> Iterator[Event]:
        yield from list(batch.events())[:-1]
        raise _Unreadable

    def broken(part: TableBatch) -> TableBatch:
        last = part.steps[-1]
        assert isinstance(last, Changes)
        assert isinstance(last.rows, LocalRows)
        return replace(part, steps=(*part.steps[:-1], Changes(last.schema, _Breaking(last.rows.table))))

    return EventBatch(batch.end, tuple(map(broken, batch.tables)), broken_events)


def _sorted(rows: Sequence[Values]) -> list[str]:
    """Rows as texts: comparable whatever the values are, and in whatever order they came."""
    return sorted(canonical_text(canonical(row)) for row in rows)


def _names(schema: ReplicatedTableSchema) -> list[str]:
    return [column.name for column in schema.columns]


def _order(key: int, name: str | None = "a", note: object = "note") -> Values:
    return {"id": key, "name": name, "note": note}


def _line(order: str, number: int, amount: str) -> Values:
    return {"number": number, "order": order, "amount": Decimal(amount)}


def _visit(page: str, seconds: int | None) -> Values:
    return {"page": page, "seconds": seconds}


def _sample(*values: object) -> Values:
    local = datetime(2024, 3, 31, 2, 30, 0, 123_456)  # noqa: DTZ001 - timestamp has no zone
    own = (*values[:7], local, local.replace(tzinfo=timezone.utc), *values[7:])
    return dict(zip(_names(SAMPLES), own, strict=True))
