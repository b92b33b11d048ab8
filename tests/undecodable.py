"""A transaction that Postgres cannot decode, on 14 to 18 alike, however often it tries.

For a transaction that it decodes the server keeps from which command on a row of the catalog is seen, by the place of
the row. A savepoint that is rolled back leaves its places to be pruned, and rows of later commands take them: those are
then seen too soon, beside the rows that they replace, so that there seem to be two tables of one file.
"""

from __future__ import annotations

import random
from typing import Any

import psycopg

__all__ = ["until_undecodable"]

Connection = psycopg.Connection[Any]

TABLES = [f"u{number}" for number in range(60)]
ROUNDS = 5000

_PAGES = "SELECT relname, split_part(ctid::text, ',', 1) FROM pg_class WHERE relname = ANY (%s)"
_DECODE = (
    "SELECT FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)"
)


def until_undecodable(conninfo: str, slot: str, publication: str) -> str:
    """Add tables to the publication, and commit transactions until the slot can deliver no more; what the server says.

    Everything before has been taken from the slot.
    """
    chance = random.Random(1)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
        connection.execute(f"ALTER PUBLICATION {publication} ADD TABLE {', '.join(TABLES)}")
        for number in range(ROUNDS):
            with connection.transaction():
                _roll_back_and_rename(connection, chance, number)
            if number % 3 == 0:
                # Only what the slot will never need to see is pruned, and that is told at a checkpoint.
                connection.execute("CHECKPOINT")
            if (said := _refusal(conninfo, slot, publication)) is not None:
                return said
    message = f"the server decoded all {ROUNDS} transactions"
    raise AssertionError(message)


def _roll_back_and_rename(connection: Connection, chance: random.Random, number: int) -> None:
    before = dict(connection.execute(_PAGES, (TABLES,)).fetchall())
    altered = chance.sample(TABLES, chance.randint(1, 6))
    with connection.transaction(force_rollback=True):
        for table in altered:
            _alter(connection, chance, table)
    # To look is what prunes.
    connection.execute(_PAGES, (TABLES,))
    _alter(connection, chance, chance.choice(TABLES))
    pages = {before[table] for table in altered}
    table = chance.choice([table for table in TABLES if before[table] in pages])
    connection.execute(f"INSERT INTO {table} VALUES ({number})")
    # A row that stays in its index has a place of its own there; one of another name is found twice.
    connection.execute(f"ALTER TABLE {table} RENAME TO renamed")
    connection.execute(f"ALTER TABLE renamed RENAME TO {table}")


def _alter(connection: Connection, chance: random.Random, table: str) -> None:
    connection.execute(f"ALTER TABLE {table} SET (fillfactor = {chance.randint(50, 100)})")


def _refusal(conninfo: str, slot: str, publication: str) -> str | None:
    """Of a session that has decoded nothing before: others remember which table a file is of."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        try:
            connection.execute(_DECODE, (slot, publication))
        except psycopg.errors.InternalError_ as error:
            return str(error.diag.message_primary)
    return None
