"""What a random walk does: each function makes the statements of one action, by chance, for the tables as they are.

An empty list: there is nothing of the kind to do. Postgres may refuse what is made here; the walk goes on then.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import psycopg

from headrace.schema import quote_identifier
from walk_source import (
    NAMES,
    PARTS,
    TYPES,
    WIDER,
    WalkColumn,
    WalkTable,
    attributes,
    checks,
    domain_is_required,
    hashed,
    labels,
    look,
    schemas,
    value,
)

__all__ = ["ACTIONS", "UNTOLD", "Maker"]

Connection = psycopg.Connection[Any]

_ALL_TYPES = (*TYPES, "mood", "pair")
_UNIQUE_TYPES = ("smallint", "integer", "bigint", "text", "character varying(20)", "character varying(60)")
_VOLATILE = {
    "double precision": "random()",
    "timestamp with time zone": "clock_timestamp()",
    "text": "gen_random_uuid()::text",
    "integer": "(random() * 1000)::int",
}
_STABLE = {"timestamp with time zone": "now()", "date": "current_date", "text": "current_user::text"}
_INTEGERS = ("smallint", "integer", "bigint")


class Maker:
    """Makes statements. `told`: what only the event trigger tells is left out if it is not there. `cases`: names of
    columns may differ in case only.
    """

    def __init__(
        self, connection: Connection, chance: random.Random, *, told: bool, listed: bool, cases: bool = True
    ) -> None:
        self.connection, self.chance, self._told, self._listed = connection, chance, told, listed
        self._cases = cases
        self._folded: Callable[[str], str] = str if cases else str.casefold
        self._number = 0

    def beside(self, chance: random.Random, number: int) -> Maker:
        """Another, whose chances and numbers leave those of this one as they are."""
        other = Maker(self.connection, chance, told=self._told, listed=self._listed, cases=self._cases)
        other._number = number
        return other

    def number(self) -> int:
        self._number += 1
        return self._number

    def tables(self) -> list[WalkTable]:
        return look(self.connection)

    def any_table(self) -> WalkTable:
        """Partitions follow their roots: of themselves there is less to alter."""
        roots = self.chance.random() < 0.9
        return self.chance.choice([table for table in self.tables() if not (roots and table.partition)])

    def any_with_rows(self) -> WalkTable:
        """To change rows of; of a partitioned table as well by its partitions."""
        return self.chance.choice(self.tables())

    def value(self, type_: str) -> str:
        return value(self.connection, self.chance, type_, self.number())

    def fresh_name(self, table: WalkTable) -> str:
        """One that no column has; also of such as were dropped."""
        used = {self._folded(column.name) for column in table.columns}
        return quote_identifier(self.chance.choice([name for name in NAMES if self._folded(name) not in used]))

    # -- rows ---------------------------------------------------------------------------------------------------

    def insert(self, table: WalkTable | None = None, rows: int | None = None) -> list[str]:
        table = table or self.any_with_rows()
        columns = table.written
        if not columns:
            return []
        given = [c for c in columns if c.required or c.key or self.chance.random() < 0.85] or columns[:1]
        names = ", ".join(column.quoted for column in given)
        many = self.chance.choice([1, 1, 3, 8]) if rows is None else rows
        values = ", ".join(f"({', '.join(self._inserted(c) for c in given)})" for _ in range(many))
        return [f"INSERT INTO {table.quoted} ({names}) VALUES {values}"]

    def _inserted(self, column: WalkColumn) -> str:
        if column.refers:
            return "NULL"
        if column.default and not column.key and self.chance.random() < 0.3:
            return "DEFAULT"
        if not column.required and self.chance.random() < 0.15:
            return "NULL"
        return self.value(column.type)

    def update(self) -> list[str]:
        """Of some columns: what is not named is kept, also what is too long to be sent again."""
        table = self.any_with_rows()
        columns = [column for column in table.written if not column.key]
        if not columns:
            return []
        some = self.chance.sample(columns, self.chance.randint(1, min(2, len(columns))))
        changes = ", ".join(f"{column.quoted} = {self._inserted(column)}" for column in some)
        return [f"UPDATE {table.quoted} SET {changes} WHERE {self._some(table)}"]

    def rekey(self) -> list[str]:
        table = self.any_with_rows()
        key = [column for column in table.written if column.key and not column.refers]
        if not key:
            return []
        column = self.chance.choice(key)
        return [f"UPDATE {table.quoted} SET {column.quoted} = {self.value(column.type)} WHERE {self._some(table, 1)}"]

    def delete(self) -> list[str]:
        table = self.any_with_rows()
        return [f"DELETE FROM {table.quoted} WHERE {self._some(table)}"]

    def truncate(self) -> list[str]:
        """Of one or several; also of a partition, and with what refers to them."""
        some = self.chance.sample(self.tables(), self.chance.choice([1, 1, 2, 3]))
        cascade = " CASCADE" if self.chance.random() < 0.7 else ""
        return ["TRUNCATE " + ", ".join(table.quoted for table in some) + cascade]

    def _some(self, table: WalkTable, rows: int | None = None) -> str:
        rows = self.chance.choice([1, 2, 6]) if rows is None else rows
        order = ", ".join(column.quoted for column in table.columns if column.key) or "tableoid, ctid"
        where = f"ORDER BY {order} LIMIT {rows} OFFSET {self.chance.randrange(12)}"
        return f"(tableoid, ctid) IN (SELECT tableoid, ctid FROM {table.quoted} {where})"

    # -- parts of ALTER TABLE -----------------------------------------------------------------------------------

    def add(self, table: WalkTable, name: str | None = None) -> str:
        name = name or self.fresh_name(table)
        kind = self.chance.choice(["plain", "plain", "constant", "constant", "required", "stable", "volatile"])
        given = {"stable": _STABLE, "volatile": _VOLATILE}.get(kind)
        if given is not None:
            type_ = self.chance.choice(list(given))
            return f"ADD {name} {type_} DEFAULT {given[type_]}"
        type_ = self.chance.choice(_ALL_TYPES)
        if kind == "plain":
            return f"ADD {name} {type_}"
        return f"ADD {name} {type_} DEFAULT {self.value(type_)}{' NOT NULL' if kind == 'required' else ''}"

    def drop(self, table: WalkTable) -> str | None:
        column = self._column(table, lambda c: not c.key or self.chance.random() < 0.1)
        return None if column is None or len(table.columns) < 3 else f"DROP {column.quoted} CASCADE"

    def widen(self, table: WalkTable) -> str | None:
        column = self._column(table, lambda c: c.type in WIDER and not c.generated and not c.refers)
        return column and f"ALTER {column.quoted} TYPE {self.chance.choice(WIDER[column.type])}"

    def convert(self, table: WalkTable) -> str | None:
        """With a USING clause; the default goes, which may not fit the new type."""
        column = self._column(table, lambda c: not c.generated and not c.key and not c.refers)
        if column is None:
            return None
        ways = [("text", f"'c' || {column.quoted}::text")]
        if column.type in _INTEGERS:
            ways += [("bigint", f"{column.quoted}::bigint * 2"), ("integer", f"({column.quoted} % 1000)::integer")]
        if column.type in ("text", "character varying(20)", "character varying(60)"):
            ways += [("integer", f"length({column.quoted})"), ("character varying(20)", f"left({column.quoted}, 5)")]
        ways = [way for way in ways if self._told or way[0] != column.type]
        if not ways:
            return None
        type_, using = self.chance.choice(ways)
        return f"ALTER {column.quoted} DROP DEFAULT, ALTER {column.quoted} TYPE {type_} USING {using}"

    def nullability(self, table: WalkTable) -> str | None:
        column = self._column(table, lambda c: not c.key and not c.generated and not c.refers)
        return column and f"ALTER {column.quoted} {'DROP' if column.required else 'SET'} NOT NULL"

    def default(self, table: WalkTable) -> str | None:
        column = self._column(table, lambda c: not c.generated and not c.refers)
        if column is None:
            return None
        if column.default and self.chance.random() < 0.6:
            return f"ALTER {column.quoted} DROP DEFAULT"
        return f"ALTER {column.quoted} SET DEFAULT {self.value(column.type)}"

    def generated(self, table: WalkTable) -> str | None:
        column = self._column(table, lambda c: not c.generated and c.type in _INTEGERS)
        if column is None:
            return None
        return f"ADD {self.fresh_name(table)} bigint GENERATED ALWAYS AS ({column.quoted}::bigint + 1) STORED"

    def numbered(self, table: WalkTable) -> str | None:
        """A column of identity: a new one, of one that is there, or no more."""
        column = self._column(table, lambda c: c.type in _INTEGERS and not c.generated and not c.refers)
        kind = self.chance.choice(["ALWAYS", "BY DEFAULT"])
        if column is None or self.chance.random() < 0.4:
            return f"ADD {self.fresh_name(table)} {self.chance.choice(_INTEGERS)} GENERATED {kind} AS IDENTITY"
        if column.identity:
            ways = ["DROP IDENTITY", f"SET GENERATED {kind}", "RESTART WITH 5000"]
            return f"ALTER {column.quoted} {self.chance.choice(ways)}"
        return f"ALTER {column.quoted} ADD GENERATED {kind} AS IDENTITY" if column.required else None

    def _column(self, table: WalkTable, fits: Callable[[WalkColumn], bool]) -> WalkColumn | None:
        found = [column for column in table.columns if fits(column)]
        return self.chance.choice(found) if found else None

    # -- statements ---------------------------------------------------------------------------------------------

    def alter(self) -> list[str]:
        """One part, or several of different columns in one statement."""
        table = self.any_table()
        makers = [self.add, self.add, self.add, self.drop, self.widen, self.convert, self.nullability, self.default]
        makers += [self.generated, self.numbered]
        chosen = self.chance.sample(makers, self.chance.choice([1, 1, 1, 2, 3]))
        clauses = [clause for make in chosen if (clause := make(table))]
        return [f"ALTER TABLE {table.quoted} {', '.join(clauses)}"] if clauses else []

    def rename_column(self) -> list[str]:
        table = self.any_table()
        column = self.chance.choice(table.columns)
        return [f"ALTER TABLE {table.quoted} RENAME {column.quoted} TO {self.fresh_name(table)}"]

    def swap_names(self) -> list[str]:
        table = self.any_table()
        one, other = (column.quoted for column in self.chance.sample(table.columns, 2))
        start = f"ALTER TABLE {table.quoted} RENAME"
        return [f"{start} {one} TO between", f"{start} {other} TO {one}", f"{start} between TO {other}"]

    def add_again(self) -> list[str]:
        table = self.any_table()
        column = self._column(table, lambda c: not c.key)
        if column is None:
            return []
        drop, add = f"DROP {column.quoted} CASCADE", self.add(table, column.quoted)
        if self.chance.random() < 0.3:
            return [f"ALTER TABLE {table.quoted} {drop}, {add}"]
        return [f"ALTER TABLE {table.quoted} {drop}", f"ALTER TABLE {table.quoted} {add}"]

    def change_key(self) -> list[str]:
        """To another column that is unique, or to one more; now and then to none."""
        table = self.any_table()
        drop = (
            [f"ALTER TABLE {table.quoted} DROP CONSTRAINT {quote_identifier(table.key_name)} CASCADE"]
            if table.key_name
            else []
        )
        if drop and self.chance.random() < 0.15:
            return [*self.set_identity(table, "FULL"), *drop]
        # A key of which something is not sent does not tell rows apart; Postgres 18 refuses to change them.
        # One that refers is always NULL: with it in the key there could be no more rows.
        sent = [column for column in table.columns if (column.sent or not column.generated) and not column.refers]
        unique = [column for column in sent if column.type in _UNIQUE_TYPES and self._is_unique(table, column)]
        if not unique:
            return []
        names = [self.chance.choice(unique).quoted]
        other = self._column(
            table, lambda c: c in sent and c.required and c.type in _UNIQUE_TYPES and c.quoted not in names
        )
        if other is not None and self.chance.random() < 0.4:
            names.append(other.quoted)
        return [*drop, f"ALTER TABLE {table.quoted} ADD PRIMARY KEY ({', '.join(names)})"]

    def _is_unique(self, table: WalkTable, column: WalkColumn) -> bool:
        query = f"SELECT count(*) = count(DISTINCT {column.quoted}) FROM {table.quoted}"
        row = self.connection.execute(query).fetchone()
        return row is not None and bool(row[0])

    def identity(self) -> list[str]:
        """To all columns, to an index, or back to the key; of a partitioned table with all its partitions."""
        table = self.any_table()
        schema, index = quote_identifier(table.name.schema), table.identity_index
        drop = [f"DROP INDEX {schema}.{quote_identifier(index)}"] if index else []
        column = self._column(table, lambda c: c.required and not c.generated and c.type in _UNIQUE_TYPES)
        if table.kind == "r" and not drop and column and self.chance.random() < 0.6 and self._is_unique(table, column):
            name = quote_identifier(f"Identity {self.number()}")
            columns = [column, *(c for c in table.columns if c.key and c != column)][: self.chance.choice([1, 1, 2])]
            create = f"CREATE UNIQUE INDEX {name} ON {table.quoted} ({', '.join(c.quoted for c in columns)})"
            return [create, *self.set_identity(table, f"USING INDEX {name}")]
        full = table.key_name is None or (table.identity != "f" and self.chance.random() < 0.5)
        return [*self.set_identity(table, "FULL" if full else "DEFAULT"), *drop]

    def set_identity(self, table: WalkTable, identity: str) -> list[str]:
        query = "SELECT relid::regclass::text FROM pg_partition_tree(%s) ORDER BY relid::regclass::text"
        found = [name for (name,) in self.connection.execute(query, (table.quoted,))]
        return [f"ALTER TABLE {name} REPLICA IDENTITY {identity}" for name in found or [table.quoted]]

    def refer(self) -> list[str]:
        """A foreign key, which TRUNCATE … CASCADE follows."""
        table, other = self.any_table(), self.any_table()
        key = [column for column in other.columns if column.key]
        if len(key) != 1:
            return []
        name = self.fresh_name(table)
        return [f"ALTER TABLE {table.quoted} ADD {name} {key[0].type} REFERENCES {other.quoted} ({key[0].quoted})"]

    def rename_table(self) -> list[str]:
        table, number = self.any_table(), self.number()
        name = quote_identifier(f"{self.chance.choice(NAMES)[:12]} {number}")
        return [f"ALTER TABLE {table.quoted} RENAME TO {name}"]

    def move_table(self) -> list[str]:
        table = self.any_table()
        other = self.chance.choice([schema for schema in schemas(self.connection) if schema != table.name.schema])
        return [f"ALTER TABLE {table.quoted} SET SCHEMA {quote_identifier(other)}"]

    def create_again(self) -> list[str]:
        table = self.any_table()
        create = self.create if table.kind == "r" else self.create_root
        return [f"DROP TABLE {table.quoted} CASCADE", *create(table.quoted)]

    def create_root(self, quoted: str) -> list[str]:
        """The same, with partitions, one of which has partitions itself: of the same hash, so by a larger modulus."""
        table, storage, *rest = self.create(quoted)
        partitions = []
        for remainder in range(PARTS):
            name = quote_identifier(f"part {self.number()}")
            divided = " PARTITION BY HASH (id)" if remainder == 0 else ""
            partitions.append(f"CREATE TABLE {name} PARTITION OF {quoted} {hashed(remainder)}{divided}")
            if divided:
                halves = [hashed(n, 2 * PARTS) for n in (0, PARTS)]
                partitions += [
                    f"CREATE TABLE {quote_identifier(f'part {self.number()}')} PARTITION OF {name} {half}"
                    for half in halves
                ]
        return [f"{table} PARTITION BY HASH (id)", storage, *partitions, *rest]

    def create(self, quoted: str) -> list[str]:
        """A table with some rows, in the publication."""
        other = self.chance.choice(_ALL_TYPES)
        columns = f"id {self.chance.choice(_INTEGERS)} PRIMARY KEY, big text, {quote_identifier('Ünder')} {other}"
        rows = ", ".join(f"({self.number()}, {self.value('text')})" for _ in range(self.chance.randint(0, 25)))
        statements = [
            f"CREATE TABLE {quoted} ({columns}, n int DEFAULT 1)",
            f"ALTER TABLE {quoted} ALTER big SET STORAGE EXTERNAL",
        ]
        fill = [f"INSERT INTO {quoted} (id, big) VALUES {rows}"] if rows else []
        publish = [f"ALTER PUBLICATION pub ADD TABLE {quoted}"] if self._listed else []
        parts = [fill, publish]
        self.chance.shuffle(parts)
        return [*statements, *parts[0], *parts[1]]

    def add_label(self) -> list[str]:
        known = self.chance.choice(labels(self.connection))
        return [f"ALTER TYPE mood ADD VALUE 'mood {self.number()}' {self.chance.choice(['BEFORE', 'AFTER'])} '{known}'"]

    def rename_label(self) -> list[str]:
        known = self.chance.choice(labels(self.connection))
        return [f"ALTER TYPE mood RENAME VALUE '{known}' TO 'mood {self.number()}'"]

    def change_domain(self) -> list[str]:
        """What it holds stays what it was."""
        number = self.number()
        ways = [f"ADD CHECK (VALUE > -{number})", f"SET DEFAULT {number}", "DROP DEFAULT", "SET NOT NULL"]
        ways += [f"DROP CONSTRAINT {quote_identifier(name)}" for name in checks(self.connection)]
        # Rows can hardly be written while it must not be NULL: where it is so, that goes first.
        ways = ["DROP NOT NULL"] if domain_is_required(self.connection) else ways
        return [f"ALTER DOMAIN score {self.chance.choice(ways)}"]

    def change_composite(self) -> list[str]:
        known = [quote_identifier(name) for name in attributes(self.connection)]
        name = quote_identifier(f"a {self.number()}")
        ways = [f"ADD ATTRIBUTE {name} int", f"RENAME ATTRIBUTE {self.chance.choice(known)} TO {name}"]
        if len(known) > 1:
            ways.append(f"DROP ATTRIBUTE {self.chance.choice(known)}")
        return [f"ALTER TYPE pair {self.chance.choice(ways)}"]


ACTIONS: dict[str, float] = {
    "insert": 10, "update": 10, "rekey": 4, "delete": 4, "truncate": 2, "alter": 12, "rename_column": 4,
    "swap_names": 1, "add_again": 3, "change_key": 2, "identity": 3, "rename_table": 2, "move_table": 1,
    "create_again": 1, "refer": 1, "add_label": 1, "rename_label": 1, "change_composite": 1,
    "change_domain": 1,
}  # fmt: skip
"""How often each is done, beside the others."""
UNTOLD = frozenset({"rename_label", "change_composite"})
"""What only the event trigger tells: old rows print differently, and neither rows nor relations say so."""
