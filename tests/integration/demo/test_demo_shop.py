"""The shop is the same every time, and its traffic does all that it says."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from headrace.demo.interrupts import Interrupted, Interrupts
from headrace.demo.shop import PUBLICATION, TABLES, Shop, create_shop
from headrace.demo.traffic import Traffic

SHOP = Shop.of_size(2_000)
KINDS = {
    "order placed", "order moved on", "order deleted", "order moved in time", "lines renumbered", "price changed",
    "description rewritten", "product renumbered", "customer joined", "customer changed", "events purged",
    "rolled back",
}  # fmt: skip


def one(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query).fetchone()  # type: ignore[call-overload]
    assert row is not None
    return row[0]


def contents(connection: psycopg.Connection[Any]) -> dict[str, str]:
    return {
        table: one(connection, f"SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM shop.{table} AS t")
        for table in TABLES
    }


def test_the_shop_is_the_same_every_time(connection: psycopg.Connection[Any]) -> None:
    create_shop(connection, SHOP, Interrupts())
    first = contents(connection)
    assert {table: one(connection, f"SELECT count(*) FROM shop.{table}") for table in TABLES} == {
        table: getattr(SHOP, table) for table in TABLES
    }
    connection.execute(f"DROP PUBLICATION {PUBLICATION}; DROP SCHEMA shop CASCADE")
    create_shop(connection, SHOP, Interrupts())
    assert contents(connection) == first


def test_the_shop_has_what_real_ones_have(connection: psycopg.Connection[Any]) -> None:
    create_shop(connection, SHOP, Interrupts())
    published = connection.execute("SELECT tablename FROM pg_publication_tables").fetchall()
    assert sorted(name for (name,) in published) == sorted(TABLES), "partitions are published by their root"
    toasted = one(
        connection, "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'shop.products'::regclass"
    )
    assert toasted > SHOP.products * 2000
    partitions = one(connection, "SELECT count(DISTINCT tableoid) FROM shop.orders")
    assert partitions == 2


def test_traffic_does_all_that_it_says_and_stops(connection: psycopg.Connection[Any], conninfo: str) -> None:
    create_shop(connection, SHOP, Interrupts())
    before = contents(connection)
    with Traffic(conninfo, SHOP, per_second=10_000) as traffic:
        while KINDS - set(traffic.counts) and traffic.transactions < 20_000:
            pass
        traffic.stop()
    assert set(traffic.counts) == KINDS
    done, after = traffic.transactions, contents(connection)
    assert all(before[table] != after[table] for table in TABLES)
    assert one(connection, "SELECT count(*) FROM shop.customers") == SHOP.customers + traffic.counts["customer joined"]
    # Newest order's number counts those rolled back too; those there are were placed.
    newer = one(connection, f"SELECT count(*) FROM shop.orders WHERE id > {SHOP.orders}")
    assert newer <= traffic.counts["order placed"]
    clients = "datname = current_database() AND backend_type = 'client backend'"
    assert one(connection, f"SELECT count(*) FROM pg_stat_activity WHERE {clients}") == 1
    assert (traffic.transactions, contents(connection)) == (done, after)


def test_a_connection_that_breaks_is_told(connection: psycopg.Connection[Any], conninfo: str) -> None:
    create_shop(connection, SHOP, Interrupts())
    with Traffic(conninfo, SHOP) as traffic:
        while not traffic.transactions:
            pass
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        while not traffic.failed:
            pass
        with pytest.raises(psycopg.OperationalError):
            traffic.stop()


def test_filling_heeds_a_signal(connection: psycopg.Connection[Any]) -> None:
    interrupts = Interrupts()
    interrupts.ask()
    with pytest.raises(Interrupted):
        create_shop(connection, SHOP, interrupts)
