"""What a random walk does to publication, partitions and schemas; as `walk_actions`."""

from __future__ import annotations

import re

from headrace.schema import quote_identifier
from walk_actions import Maker
from walk_source import PARTS, WalkTable, hashed

__all__ = ["PUBLISHING", "Publisher"]

_CHILDREN = """
SELECT inhrelid::regclass::text, pg_get_expr(relpartbound, inhrelid)
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = %s::regclass ORDER BY 1
"""
_BOUND = "SELECT coalesce(pg_get_expr(relpartbound, oid), '') FROM pg_class WHERE oid = %s::regclass"
_ENTRIES = """
SELECT prrelid::regclass::text, ARRAY(
    SELECT attname FROM pg_attribute WHERE attrelid = prrelid AND attnum = ANY (prattrs) ORDER BY attnum),
    pg_get_expr(prqual, prrelid)
FROM pg_publication_rel JOIN pg_publication p ON p.oid = prpubid WHERE pubname = 'pub' ORDER BY 1
"""
_ENTRIES_14 = """
SELECT prrelid::regclass::text, '{}'::text[], NULL
FROM pg_publication_rel JOIN pg_publication p ON p.oid = prpubid WHERE pubname = 'pub' ORDER BY 1
"""


class Publisher:
    """Makes statements. `listed`: the publication names its tables; `via_root`: it sends roots, not partitions."""

    def __init__(self, maker: Maker, *, listed: bool, via_root: bool) -> None:
        self._maker, self._listed, self._via_root = maker, listed, via_root
        self._chance, self._connection = maker.chance, maker.connection

    @property
    def _moves_are_noticed(self) -> bool:
        """A walsender of Postgres 14 goes on publishing a table that it knows as before it was attached or detached."""
        return self._connection.info.server_version >= 150_000

    def partition(self) -> list[str]:
        """Detach one of a root, or attach or create one where there is room."""
        root = self._chance.choice([table for table in self._maker.tables() if table.kind == "p"] or [None])
        if root is None:
            return []
        children = dict(self._connection.execute(_CHILDREN, (root.quoted,)).fetchall())
        bounds = [_hash_bound(bound) for bound in children.values()]
        modulus = max([modulus for modulus, _ in bounds], default=2 * PARTS)
        # Of a partition's own partitions only those that some row can be in: the others are never touched.
        own = self._connection.execute(_BOUND, (root.quoted,)).fetchone()
        assert own is not None
        divisor, rest = _hash_bound(own[0]) if own[0] else (1, 0)
        free = [n for n in range(modulus) if n % divisor == rest and (modulus, n) not in bounds]
        if len(children) > 1 and (not free or self._chance.random() < 0.3):
            child = self._chance.choice(list(children))
            if not self._moves_are_noticed or self._chance.random() < 0.2:
                return [f"DROP TABLE {child}"]
            return [f"ALTER TABLE {root.quoted} DETACH PARTITION {child}"]
        return self._filled(root, modulus, free) if free else []

    def _filled(self, root: WalkTable, modulus: int, free: list[int]) -> list[str]:
        remainder = self._chance.choice(free)
        like = [(column.name, column.type) for column in root.columns]
        fitting = [
            table
            for table in self._maker.tables()
            if table.kind == "r" and not table.partition and [(c.name, c.type) for c in table.columns] == like
        ]
        if fitting and self._moves_are_noticed:
            table = self._chance.choice(fitting)
            remainder = next((n for n in free if self._fits(root, table, modulus, n)), remainder)
            return [f"ALTER TABLE {root.quoted} ATTACH PARTITION {table.quoted} {hashed(remainder, modulus)}"]
        name = quote_identifier(f"part {self._maker.number()}")
        return [f"CREATE TABLE {name} PARTITION OF {root.quoted} {hashed(remainder, modulus)}"]

    def _fits(self, root: WalkTable, table: WalkTable, modulus: int, remainder: int) -> bool:
        key = self._connection.execute("SELECT pg_get_partkeydef(%s::regclass)", (root.quoted,)).fetchone()
        assert key is not None
        column = re.sub(r"^HASH \((.*)\)$", r"\1", key[0])
        name = root.quoted.replace("'", "''")
        check = f"satisfies_hash_partition('{name}'::regclass, {modulus}, {remainder}, {column})"
        row = self._connection.execute(f"SELECT bool_and({check}) FROM {table.quoted}").fetchone()
        return row is not None and row[0] is not False

    def rename_schema(self) -> list[str]:
        other = [name for name in {table.name.schema for table in self._maker.tables()} if name != "public"]
        # Before 16 a walsender goes on calling tables that it knows by the schema's former name.
        if not other or self._connection.info.server_version < 160_000:
            return []
        name = quote_identifier(f"Schema {self._maker.number()}")
        return [f"ALTER SCHEMA {quote_identifier(min(other))} RENAME TO {name}"]

    def join(self) -> list[str]:
        """What fell out of the publication, with a column that its list named or by `leave`."""
        out = [table for table in self._maker.tables() if not table.published and not table.partition]
        if not self._listed or not out:
            return []
        return [f"ALTER PUBLICATION pub ADD TABLE {self._chance.choice(out).quoted}"]

    def leave(self) -> list[str]:
        listed = [table for table in self._maker.tables() if table.published and not table.partition]
        if not self._listed or len(listed) < 4:
            return []
        return [f"ALTER PUBLICATION pub DROP TABLE {self._chance.choice(listed).quoted}"]

    def show(self) -> list[str]:
        """Other columns or other rows of a table; or all again."""
        new = self._connection.info.server_version >= 150_000
        tables = [t for t in self._maker.tables() if t.published and not t.partition and t.key_name]
        tables = [t for t in tables if t.identity == "d" and (t.kind == "r" or self._via_root)]
        if not self._listed or not new or not tables:
            return []
        table = self._chance.choice(tables)
        entry = self._entry(table)
        if self._chance.random() < 0.5:
            return [f"ALTER PUBLICATION pub DROP TABLE {table.quoted}", f"ALTER PUBLICATION pub ADD TABLE {entry}"]
        entries = [self._as_is(*row) for row in self._entries() if row[0] != self._regclass(table)]
        return [f"ALTER PUBLICATION pub SET TABLE {', '.join([*entries, entry])}"]

    def publish_again(self) -> list[str]:
        """The publication goes, and another one of its name comes, in a transaction or not."""
        row = self._connection.execute("SELECT * FROM pg_publication WHERE pubname = 'pub'").fetchone()
        described = self._connection.execute("SELECT * FROM pg_publication LIMIT 0").description
        assert row is not None
        assert described is not None
        known = dict(zip((column.name for column in described), row, strict=True))
        options = [f"publish_via_partition_root = {str(known['pubviaroot']).lower()}"]
        if known.get("pubgencols") == "s":
            options.append("publish_generated_columns = stored")
        entries = [self._as_is(*entry) for entry in self._entries()] if self._listed else []
        shown = "FOR ALL TABLES" if known["puballtables"] else ""
        if entries:
            shown = f"FOR TABLE {', '.join(entries)}"
        elif not shown and not self._listed:
            shown = "FOR TABLES IN SCHEMA public"
        create = f"CREATE PUBLICATION pub {shown} WITH ({', '.join(options)})"
        together = self._chance.random() < 0.5
        return [f"DROP PUBLICATION pub; {create}"] if together else ["DROP PUBLICATION pub", create]

    def _entry(self, table: WalkTable) -> str:
        columns = [c for c in table.written if c.key or self._chance.random() < 0.7]
        listed = f" ({', '.join(c.quoted for c in columns)})" if self._chance.random() < 0.6 else ""
        key = next(column for column in table.columns if column.key)
        filtered = key.type in ("smallint", "integer", "bigint") and self._chance.random() < 0.4
        return f"{table.quoted}{listed}" + (f" WHERE ({key.quoted} % 3 <> 0)" if filtered else "")

    def _entries(self) -> list[tuple[str, list[str], str | None]]:
        query = _ENTRIES if self._connection.info.server_version >= 150_000 else _ENTRIES_14
        return self._connection.execute(query).fetchall()

    def _as_is(self, name: str, columns: list[str], row_filter: str | None) -> str:
        listed = f" ({', '.join(map(quote_identifier, columns))})" if columns else ""
        return f"{name}{listed}" + (f" WHERE ({row_filter})" if row_filter else "")

    def _regclass(self, table: WalkTable) -> str:
        row = self._connection.execute("SELECT %s::regclass::text", (table.quoted,)).fetchone()
        assert row is not None
        return str(row[0])


def _hash_bound(text: str) -> tuple[int, int]:
    modulus, remainder = map(int, re.findall(r"\d+", text))
    return modulus, remainder


PUBLISHING: dict[str, float] = {
    "partition": 3,
    "rename_schema": 0.5,
    "join": 3,
    "leave": 0.7,
    "show": 2,
    "publish_again": 0.3,
}
