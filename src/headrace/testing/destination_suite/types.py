"""Every type of Postgres: its extremes, its empty value and NULL, copied and streamed, as values and as keys."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from ...lsn import Lsn
from ...schema import ReplicaIdentity
from ..example_tables import SAMPLES, example_table
from ..example_values import family_rows, family_table
from ..gaps import needs
from ..local_rows import Deleted, Inserted, Updated, transaction
from .site import Site, Values, comparable

__all__ = ["TypeSuite"]

_REJECTED = {"key": '{"id": "1"}', "column": "day", "text": "infinity"}
_STREAMED = {**_REJECTED, "key": '{"id": "2"}', "commit_lsn": 100, "tx_ordinal": 0}

# Two values of each: a row that differs in one column only is another row.
_KEYS: dict[str, tuple[Any, Any]] = {
    "bool": (True, False),
    "int4": (-1, 1),
    "int8": (2**62, -(2**62)),
    "float8": (0.5, -1e300),
    "numeric": (Decimal("1.50"), Decimal("-1.50")),
    "text": ("a", "A "),
    "bytea": (b"", b"\x00\xff"),
    "date": (date(1969, 12, 31), date(9999, 12, 31)),
    "timestamp": (datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001 - it has no zone
    "timestamptz": (datetime(2024, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)),
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
}
_KEYED_COLUMNS = {f"k_{name}": name for name in _KEYS}
_KEYED = example_table(16_601, "keyed", {**_KEYED_COLUMNS, "value": "text"}, tuple(_KEYED_COLUMNS))
_UNKEYED = example_table(16_602, "unkeyed", {**_KEYED_COLUMNS, "value": "text"}, identity=ReplicaIdentity.FULL)


class TypeSuite:
    """Mixed into `DestinationSuite`, whose fixtures it uses."""

    def test_integers(self, site: Site) -> None:
        _assert_kept(site, "integers")

    def test_floats(self, site: Site) -> None:
        _assert_kept(site, "floats")

    def test_decimals(self, site: Site) -> None:
        _assert_kept(site, "decimals")

    def test_unbounded_numbers(self, site: Site) -> None:
        _assert_kept(site, "unbounded_numbers")

    def test_texts(self, site: Site) -> None:
        _assert_kept(site, "texts")

    def test_bytes(self, site: Site) -> None:
        _assert_kept(site, "bytes")

    def test_dates_and_timestamps(self, site: Site) -> None:
        _assert_kept(site, "dates_and_timestamps")

    def test_times_and_intervals(self, site: Site) -> None:
        _assert_kept(site, "times_and_intervals")

    def test_uuid(self, site: Site) -> None:
        _assert_kept(site, "uuid")

    def test_json(self, site: Site) -> None:
        _assert_kept(site, "json")

    def test_networks_and_bits(self, site: Site) -> None:
        _assert_kept(site, "networks_and_bits")

    def test_ranges(self, site: Site) -> None:
        _assert_kept(site, "ranges")

    def test_geometry_and_search(self, site: Site) -> None:
        _assert_kept(site, "geometry_and_search")

    def test_system_types(self, site: Site) -> None:
        _assert_kept(site, "system_types")

    def test_enums(self, site: Site) -> None:
        _assert_kept(site, "enums")

    def test_domains(self, site: Site) -> None:
        _assert_kept(site, "domains")

    def test_composites(self, site: Site) -> None:
        _assert_kept(site, "composites")

    def test_maps(self, site: Site) -> None:
        _assert_kept(site, "maps")

    def test_arrays_of_numbers(self, site: Site) -> None:
        _assert_kept(site, "arrays_of_numbers")

    def test_arrays_of_texts(self, site: Site) -> None:
        _assert_kept(site, "arrays_of_texts")

    def test_arrays_of_dates(self, site: Site) -> None:
        _assert_kept(site, "arrays_of_dates")

    def test_arrays_of_own_types(self, site: Site) -> None:
        _assert_kept(site, "arrays_of_own_types")

    def test_keys_of_many_types(self, site: Site) -> None:
        rows = _rows_that_differ_in_one_column()
        site.copy(_KEYED, rows)
        site.changes(Lsn(100), *(Updated(_KEYED, {**row, "value": "new"}) for row in rows[:6]))
        site.changes(Lsn(300), *(Deleted(_KEYED, {**row, "value": None}) for row in rows[3:9]))
        site.assert_rows(_KEYED, [*({**row, "value": "new"} for row in rows[:3]), *rows[9:]])

    def test_rows_without_key_of_many_types(self, site: Site) -> None:
        rows = [*_rows_that_differ_in_one_column(), dict.fromkeys([*_KEYED_COLUMNS, "value"])]
        site.copy(_UNKEYED, rows + rows)
        site.changes(Lsn(100), *(Deleted(_UNKEYED, row) for row in rows))
        site.assert_rows(_UNKEYED, rows)

    def test_values_that_no_type_holds_are_null(self, site: Site) -> None:
        row = {column.name: 1 if column.name == "id" else None for column in SAMPLES.columns}
        _reject(site, row)
        site.assert_rows(SAMPLES, [row, {**row, "id": 2}])

    @needs("quarantined")
    def test_values_that_no_type_holds_reach_the_quarantine(self, site: Site) -> None:
        row = {column.name: 1 if column.name == "id" else None for column in SAMPLES.columns}
        _reject(site, row)
        quarantined = site.suite.quarantined(site.destination, SAMPLES.table.name)
        assert quarantined is not None, "there is no quarantine"
        copied = {**_REJECTED, "commit_lsn": None, "tx_ordinal": None}
        assert comparable(quarantined) == comparable([copied, _STREAMED])
        site.destination.drop_table_for_copy(SAMPLES)
        site.copy(SAMPLES, [row])
        assert not site.suite.quarantined(site.destination, SAMPLES.table.name)


def _assert_kept(site: Site, family: str) -> None:
    schema, rows = family_table(family), family_rows(family)
    more = [{**row, "id": row["id"] + 100} for row in rows]
    site.copy(schema, rows)
    site.changes(Lsn(100), *(Inserted(schema, row) for row in more))
    site.assert_rows(schema, [*rows, *more])
    # Each row takes the values of the one before it, the first those of the last: NULL comes and goes.
    turned = [{**before, "id": row["id"]} for row, before in zip(rows, [rows[-1], *rows[:-1]], strict=True)]
    site.changes(Lsn(300), *(Updated(schema, row) for row in turned))
    site.assert_rows(schema, [*turned, *more])


def _rows_that_differ_in_one_column() -> list[dict[str, Any]]:
    first = {f"k_{name}": values[0] for name, values in _KEYS.items()}
    others = [{**first, f"k_{name}": values[1]} for name, values in _KEYS.items()]
    return [{**row, "value": f"v{i}"} for i, row in enumerate([first, *others])]


def _reject(site: Site, row: Values) -> None:
    site.copy(SAMPLES, [row], rejected=[_REJECTED])
    site.write(Lsn(200), transaction(Lsn(100), Inserted(SAMPLES, {**row, "id": 2})), rejected=[_STREAMED])
