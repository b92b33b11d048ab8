"""Live traffic on the demo's shop: a few connections that do what shops do, until they are told to stop."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from .shop import Shop

__all__ = ["Traffic"]

# Transactions a second, all connections together: the cores are for the pipeline.
_PER_SECOND = 150.0
_CONNECTIONS = 3
# Where moved products get their new ids: far from those there are, so that keys never meet.
_MOVED_ID = 1_000_000
_TAGS: tuple[list[str | None] | None, ...] = (None, [], ["new", None], ["a,b", "ü"])

_Connection = psycopg.Connection[Any]


class _GivenUp(Exception):
    """Rolls a transaction back."""


class Traffic:
    """`start`, then `stop`, which raises what ended a connection before its time."""

    def __init__(
        self,
        conninfo: str,
        shop: Shop,
        *,
        seed: int = 1,
        connections: int = _CONNECTIONS,
        per_second: float = _PER_SECOND,
    ) -> None:
        self._stopping = threading.Event()
        self._clients = [_Client(conninfo, shop, seed * 1000 + n) for n in range(connections)]
        self._interval = connections / per_second
        self._error: Exception | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(client,), name=f"traffic-{n}", daemon=True)
            for n, client in enumerate(self._clients)
        ]

    def __enter__(self) -> Traffic:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the transactions under way end. May be repeated."""
        self._end()
        if self._error is not None:
            raise self._error

    @property
    def counts(self) -> Mapping[str, int]:
        """Transactions by what they did; `rolled back` among them."""
        return sum((client.counts.copy() for client in self._clients), Counter[str]())

    @property
    def failed(self) -> bool:
        """Whether a connection has ended before its time."""
        return self._error is not None

    @property
    def transactions(self) -> int:
        return sum(self.counts.values())

    def _end(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _run(self, client: _Client) -> None:
        try:
            with psycopg.connect(client.conninfo, autocommit=True) as connection:
                due = time.monotonic()
                while not self._stopping.wait(max(0.0, due - time.monotonic())):
                    client.act(connection)
                    # Not from when it was due: what was missed is not made up for in a burst.
                    due = max(due, time.monotonic() - 1) + self._interval
        except psycopg.Error as error:
            self._error = error


class _Client:
    """One connection's choices, from a seed of its own."""

    def __init__(self, conninfo: str, shop: Shop, seed: int) -> None:
        self.conninfo = conninfo
        self.counts: Counter[str] = Counter()
        self._shop = shop
        self._random = random.Random(seed)  # noqa: S311 - a shop, not a cipher
        self._newest_order = shop.orders
        kinds: dict[str, tuple[Callable[[_Connection], None], int]] = {
            "order placed": (self._place_order, 25),
            "order given up": (self._give_up, 3),
            "order moved on": (self._move_on, 20),
            "order deleted": (self._delete_order, 5),
            "order moved in time": (self._move_in_time, 4),
            "lines renumbered": (self._renumber, 4),
            "price changed": (self._change_price, 14),
            "description rewritten": (self._rewrite, 3),
            "product renumbered": (self._renumber_product, 3),
            "customer joined": (self._join, 4),
            "customer changed": (self._change_customer, 10),
            "events purged": (self._purge, 5),
        }
        self._kinds = {name: act for name, (act, _) in kinds.items()}
        self._weights = [weight for _, weight in kinds.values()]

    def act(self, connection: _Connection) -> None:
        """One transaction."""
        kind = self._random.choices(list(self._kinds), self._weights)[0]
        try:
            with connection.transaction():
                self._kinds[kind](connection)
        except (_GivenUp, psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
            kind = "rolled back"
        self.counts[kind] += 1

    def _customer(self) -> int:
        return self._random.randint(1, self._shop.customers)

    def _product(self) -> int:
        return self._random.randint(1, self._shop.products)

    def _order(self) -> int:
        return self._random.randint(1, self._newest_order)

    def _money(self, top: int = 500) -> str:
        return f"{self._random.randint(0, top)}.{self._random.randint(0, 99):02}"

    def _place_order(self, connection: _Connection) -> None:
        """Four tables in one transaction."""
        customer = self._customer()
        placed = connection.execute(
            "INSERT INTO shop.orders (created_at, customer_id, status, total, shipping, note) "
            "VALUES (clock_timestamp(), %s, 'placed', %s, %s, %s) RETURNING id",
            (customer, self._money(), Jsonb({"city": "Köln", "express": self._random.random() < 0.5}), None),
        ).fetchone()
        assert placed is not None
        self._newest_order = placed[0]
        # In the order of their ids: two connections then never wait for each other.
        products = sorted(self._product() for _ in range(self._random.randint(1, 4)))
        for line, product in enumerate(products, start=1):
            connection.execute(
                "INSERT INTO shop.order_items VALUES (%s, %s, %s, %s, %s, %s)",
                (placed[0], line, product, self._random.randint(1, 9), self._money(), self._random.random() < 0.1),
            )
            connection.execute("UPDATE shop.products SET stock = stock - 1 WHERE id = %s", (product,))
        connection.execute(
            "INSERT INTO shop.events VALUES (gen_random_uuid(), clock_timestamp() AT TIME ZONE 'UTC', 'order', %s, "
            "'192.0.2.1', %s)",
            (customer, Jsonb({"order": placed[0], "lines": len(products), "coupon": None})),
        )

    def _give_up(self, connection: _Connection) -> None:
        self._place_order(connection)
        raise _GivenUp

    def _move_on(self, connection: _Connection) -> None:
        status, note = self._random.choice(("paid", "shipped", "returned")), self._random.choice((None, "", "soon"))
        connection.execute("UPDATE shop.orders SET status = %s, note = %s WHERE id = %s", (status, note, self._order()))

    def _delete_order(self, connection: _Connection) -> None:
        order = self._order()
        connection.execute("DELETE FROM shop.order_items WHERE order_id = %s", (order,))
        connection.execute("DELETE FROM shop.orders WHERE id = %s", (order,))

    def _move_in_time(self, connection: _Connection) -> None:
        """A new key, and often another partition."""
        days = self._random.randint(1, 200)
        connection.execute(
            "UPDATE shop.orders SET created_at = created_at + %s * INTERVAL '1 day' WHERE id = %s",
            (days, self._order()),
        )

    def _renumber(self, connection: _Connection) -> None:
        connection.execute("UPDATE shop.order_items SET line = line + 100 WHERE order_id = %s", (self._order(),))

    def _change_price(self, connection: _Connection) -> None:
        """The description stays as it is, and is not sent."""
        connection.execute("UPDATE shop.products SET price = %s WHERE id = %s", (self._money(), self._product()))

    def _rewrite(self, connection: _Connection) -> None:
        text = self._random.randbytes(1500).hex()
        connection.execute("UPDATE shop.products SET description = %s WHERE id = %s", (text, self._product()))

    def _renumber_product(self, connection: _Connection) -> None:
        """A new key for a row whose description is not sent; and back again."""
        connection.execute(
            "UPDATE shop.products SET id = id + CASE WHEN id > %s THEN -%s::integer ELSE %s::integer END "
            "WHERE id IN (%s, %s)",
            (_MOVED_ID, _MOVED_ID, _MOVED_ID, product := self._product(), product + _MOVED_ID),
        )

    def _join(self, connection: _Connection) -> None:
        name, tags = f"Newcomer {self._random.randint(1, 10**6)}", self._random.choice(_TAGS)
        connection.execute(
            "INSERT INTO shop.customers (name, email, tier, balance, tags, active, joined, updated_at) "
            "VALUES (%s, 'new@example.com', 'bronze', 0, %s, true, current_date, clock_timestamp())",
            (name, tags),
        )

    def _change_customer(self, connection: _Connection) -> None:
        connection.execute(
            "UPDATE shop.customers SET balance = balance + %s, tier = %s, updated_at = clock_timestamp() WHERE id = %s",
            (self._money(50), self._random.choice(("bronze", "silver", "gold")), self._customer()),
        )

    def _purge(self, connection: _Connection) -> None:
        connection.execute(
            "DELETE FROM shop.events WHERE id IN (SELECT id FROM shop.events WHERE id > %s ORDER BY id LIMIT 5)",
            (str(self._uuid()),),
        )

    def _uuid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
