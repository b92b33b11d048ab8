"""A random walk through everything that can happen to tables: DDL and rows, in transactions, with rollbacks.

The same seed makes the same steps. It is printed; HEADRACE_WALK_SEED replays it. Postgres itself is asked, before every
action, what there is.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.schema import quote_identifier
from pipelining import PUBLICATION, source_rows
from walk_actions import ACTIONS, UNTOLD, Maker
from walk_publication import PUBLISHING, Publisher
from walk_source import ARROW_TYPES, SCHEMAS, WalkColumn, WalkTable, look

__all__ = ["ANY_KEY", "Reading", "Shown", "Walk", "walk_seed"]

Connection = psycopg.Connection[Any]

ANY_KEY: frozenset[str] = frozenset()
"""Of a destination that does not say by which columns it finds rows: no table has a key without columns."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A destination's table, as somebody reads it who is not Headrace."""

    rows: list[str]
    """Canonical and sorted."""
    columns: Sequence[str]
    types: Sequence[pa.DataType] | None = None
    """None: it has none."""
    key: frozenset[str] | None = ANY_KEY
    """None: it has no key."""
    has_smallint: bool = True
    """Whether it does not make an int of a smallint."""


Reading = Callable[[str], Shown]
"""A destination's table by name. Raises KeyError or HeadraceError if there is none."""

TABLES = 10
_GRACE_S = 30.0
_QUICK_SEED = 1885148702
_TRIES = 100
_TOUCHED = 1_000_000
"""From where the numbers of rows on that only touch a table are."""
_LOCK_MS = 300


class _RolledBack(Exception):
    pass


def walk_seed(*, quick: bool) -> int:
    """A quick walk takes the same steps each time, so that what breaks it is a change. A long one goes anywhere."""
    given = os.environ.get("HEADRACE_WALK_SEED")
    seed = int(given) if given is not None else _QUICK_SEED if quick else random.randrange(1 << 32)
    print(f"HEADRACE_WALK_SEED={seed}", flush=True)
    return seed


class Walk:
    """Ten tables of a database. `told`: whether the event trigger is at work, so that all may be done. `cases`: whether
    columns of a table may have names that differ in case only.
    """

    def __init__(self, conninfo: str, seed: int, *, told: bool, cases: bool = True) -> None:
        self._chance = random.Random(seed)
        self._told = told
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._other = psycopg.connect(conninfo)
        form = self._chance.choice(["all", "listed", "listed", "schema"])
        listed, via_root = form == "listed", self._chance.random() < 0.6
        self._maker = Maker(self._connection, self._chance, told=told, listed=listed, cases=cases)
        # When tables are touched is a matter of time, sometimes: the steps are not to depend on it.
        self._toucher = self._maker.beside(random.Random(seed + 1), _TOUCHED)
        publisher = Publisher(self._maker, listed=listed, via_root=via_root)
        self._makers = dict.fromkeys(ACTIONS, self._maker) | dict.fromkeys(PUBLISHING, publisher)
        weights = ACTIONS | PUBLISHING
        self._weights = {name: weight for name, weight in weights.items() if told or name not in UNTOLD}
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._prepare(form, via_root)

    def _prepare(self, form: str, via_root: bool) -> None:
        execute = self._connection.execute
        execute(f"ALTER DATABASE {self._connection.info.dbname} SET logical_decoding_work_mem = '64kB'")
        execute("SET timezone = 'UTC'")
        for session in (self._connection, self._other):
            # One thread has both: what waits for the other would wait for ever.
            session.execute(f"SET lock_timeout = {_LOCK_MS}")
        self._other.commit()
        execute(f"CREATE SCHEMA {quote_identifier(SCHEMAS[1])}")
        execute("CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TYPE pair AS (x int, y int)")
        execute("CREATE DOMAIN score AS integer")
        version = self._connection.info.server_version
        options = [f"publish_via_partition_root = {str(via_root).lower()}"]
        if version >= 180_000 and self._chance.random() < 0.5:
            options.append("publish_generated_columns = stored")
        shown = {"all": "FOR ALL TABLES", "listed": ""}.get(form, "FOR TABLES IN SCHEMA public")
        shown = "FOR ALL TABLES" if form == "schema" and version < 150_000 else shown
        execute(f"CREATE PUBLICATION {PUBLICATION} {shown} WITH ({', '.join(options)})")
        for number in range(TABLES):
            create = self._maker.create if number else self._maker.create_root
            for statement in create(f'public."Table {number}"'):
                execute(statement)

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._other.close()

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def step(self) -> None:
        """One action by itself, or some in a transaction, of which parts or the whole may be rolled back.

        Now and then another session begins a transaction, and leaves it open for some steps.
        """
        if self._chance.random() < 0.08:
            self._hold()
        if self._chance.random() < 0.6:
            self._act(contextlib.nullcontext)
            return
        with contextlib.suppress(_RolledBack), self._connection.transaction():
            print("BEGIN")
            for _ in range(self._chance.randint(2, 6)):
                self._act(self._connection.transaction)
            if self._chance.random() < 0.15:
                print("ROLLBACK")
                raise _RolledBack
        print("END")

    def _act(self, guard: Callable[[], Any]) -> None:
        name = self._chance.choices(list(self._weights), list(self._weights.values()))[0]
        statements = getattr(self._makers[name], name)()
        undo = guard is not contextlib.nullcontext and self._chance.random() < 0.12
        try:
            with guard():
                for statement in statements:
                    print(f"{statement};" if len(statement) < 2000 else f"{statement[:2000]}…")
                    self._connection.execute(statement)
                if undo:
                    print("ROLLBACK TO SAVEPOINT")
                    raise _RolledBack
        except _RolledBack:
            return
        except psycopg.Error as error:
            print(f"-- refused: {str(error).splitlines()[0]}")
            self.refused[name] += 1
            return
        self.done[name] += bool(statements)

    def _hold(self) -> None:
        """The other session writes, and stays in its transaction; or it ends it."""
        if self._other.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            self._end_other(self._chance)
            return
        try:
            for statement in (*self._maker.insert(rows=1), *self._maker.insert(rows=1), *self._maker.update()):
                print(f"{statement}; -- by another session, which does not commit yet")
                self._other.execute(statement)
        except psycopg.Error as error:
            print(f"-- refused: {str(error).splitlines()[0]}")
            self._other.rollback()
        self.done["hold"] += 1

    def let_go(self) -> None:
        """The other session ends its transaction, if it is in one: nothing gets ready that has to wait for it."""
        if self._other.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            self._end_other(self._toucher.chance)

    def _end_other(self, chance: random.Random) -> None:
        commits = chance.random() < 0.8
        print("COMMIT; -- by the other session" if commits else "ROLLBACK; -- by the other session")
        try:
            self._other.commit() if commits else self._other.rollback()
        except psycopg.Error as error:
            # A constraint that is checked at the end.
            print(f"-- refused: {str(error).splitlines()[0]}")

    def touch(self) -> None:
        """Before a checkpoint all transactions end, and without the event trigger a row comes to every table: only
        changes show how it looks then.
        """
        self.let_go()
        for table in [] if self._told else self._published():
            # By chance a row is refused: it is another partition's, a default may be NULL, a key there already; or the
            # row is not sent.
            assert any(self._inserts(table) for _ in range(_TRIES)), table

    def _inserts(self, table: WalkTable) -> bool:
        before = self._count(table)
        try:
            for statement in self._toucher.insert(table, 1):
                self._connection.execute(statement)
        except psycopg.Error:
            pass
        self._toucher.number()
        return self._count(table) > before

    def _count(self, table: WalkTable) -> int:
        row = self._connection.execute(f"SELECT count(*) FROM {table.quoted} {_where(table)}").fetchone()
        assert row is not None
        return int(row[0])

    def _published(self) -> list[WalkTable]:
        return [table for table in look(self._connection) if table.published]

    def names(self) -> set[str]:
        return {str(table.name) for table in self._published()}

    def differences(self, read: Reading) -> list[str]:
        """What of the destination's tables is not as at the source: columns, their order and types, the key, rows."""
        found = (self._difference(table, read) for table in self._published())
        return [difference for difference in found if difference is not None]

    def until_same(self, read: Reading, turn: Callable[[], object], patience_s: float = _GRACE_S) -> None:
        """Wait until nothing differs. `turn` waits a moment, and raises if it is over."""
        deadline = time.monotonic() + patience_s
        while differences := self.differences(read):
            assert time.monotonic() < deadline, "\n".join(differences)
            turn()
        print(f"-- checkpoint: all {len(self.names())} tables are the same", flush=True)

    def _difference(self, table: WalkTable, read: Reading) -> str | None:
        names = [column.name for column in table.shown]
        try:
            shown = read(str(table.name))
        except (KeyError, HeadraceError) as error:
            return f"{table.name}: {error}"
        if list(shown.columns) != names:
            return f"{table.name}: columns {names} wanted, {list(shown.columns)} found"
        if shown.types is not None:
            types = [_arrow_type(column, shown) for column in table.shown]
            if types != list(map(_plain, shown.types)):
                return f"{table.name}: types {types} wanted, {list(map(_plain, shown.types))} found, of {names}"
        # Without the event trigger the key is that of the table's last change that told of it.
        if self._told and shown.key not in (ANY_KEY, table.found_by):
            return f"{table.name}: key {table.found_by} wanted, {shown.key} found"
        found = shown.rows
        chosen = ", ".join(map(quote_identifier, names))
        wanted = source_rows(self._connection, f"(SELECT {chosen} FROM {table.quoted} {_where(table)}) AS t")
        if wanted == found:
            return None
        missing, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
        told = [f"missing {_short(row)}" for row in [*missing][:2]] + [f"extra {_short(row)}" for row in [*extra][:2]]
        return f"{table.name}: {missing.total()} missing, {extra.total()} extra\n  " + "\n  ".join(told)


def _arrow_type(column: WalkColumn, shown: Shown) -> str:
    type_ = ARROW_TYPES[column.type]
    return _plain(pa.int32() if type_ == pa.int16() and not shown.has_smallint else type_)


def _plain(type_: pa.DataType) -> str:
    """The type, however it lies in memory and whatever its time zone is called."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"list of {_plain(type_.value_type)}"
    if pa.types.is_timestamp(type_):
        return f"timestamp in {type_.unit}{' with time zone' if type_.tz else ''}"
    return str(type_).removeprefix("large_").removesuffix("_view")


def _short(row: str) -> str:
    """The row with its long values cut, so that all columns show."""
    return re.sub(r'"([^"]{40})[^"]+"', r'"\1…"', row)


def _where(table: WalkTable) -> str:
    return f"WHERE {table.row_filter}" if table.row_filter else ""
