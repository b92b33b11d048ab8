"""How many rows a CPU-second the columnar decoder turns into Arrow, by table width, and whether it holds as rows grow.

The messages are those of TPC-C's tables, interleaved in transactions as TPC-C would: new orders insert ten order lines
and update ten stock rows, payments update a customer, deliveries update order lines and customers. Run alone, it prints
the figures:

    python benchmarks/decoder.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.lsn import Lsn
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.columnar import decode_changes
from headrace.pgoutput.encoder import begin_message, commit_message, encode
from headrace.pgoutput.envelope import envelope
from headrace.pgoutput.messages import Insert, Relation, RelationColumn, Text, TupleData, Update
from headrace.schema import ReplicaIdentity

__all__ = ["BARS", "CUSTOMER", "ORDER_LINE", "STOCK", "WIDE", "linearity", "measure", "tpcc_batch", "wide_batch"]

SEGMENT_BYTES = 32 << 20
LINEARITY_ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
# Microseconds on Postgres's clock: some day in 2025.
COMMIT_TIME = 800_000_000_000_000

INT4, INT2, TEXT, BPCHAR, VARCHAR, NUMERIC, TIMESTAMP, TIMESTAMPTZ, FLOAT8, BOOL = (
    23, 21, 25, 1042, 1043, 1700, 1114, 1184, 701, 16,
)  # fmt: skip
BARS = {"cols10": 500_000, "cols17": 300_000, "cols21_text500": 250_000}
"""Rows per CPU-second that must be reached."""


def numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale) + 4


def chars(length: int) -> int:
    return length + 4


@dataclass(frozen=True)
class Table:
    """A relation and, for each of its columns, who makes up a value."""

    relation: Relation
    values: tuple[Callable[[random.Random], bytes], ...]

    @property
    def id(self) -> int:
        return self.relation.relation_id

    def row(self, rng: random.Random) -> TupleData:
        return tuple(Text(make(rng)) for make in self.values)


def integer(low: int, high: int) -> Callable[[random.Random], bytes]:
    return lambda rng: b"%d" % rng.randint(low, high)


def money(high: int) -> Callable[[random.Random], bytes]:
    return lambda rng: b"%.2f" % (rng.randint(0, high * 100) / 100)


def letters(low: int, high: int) -> Callable[[random.Random], bytes]:
    pool = bytes(random.Random(high).choices(b"abcdefghijklmnopqrstuvwxyz", k=4096))

    def make(rng: random.Random) -> bytes:
        start = rng.randrange(4096 - high)
        return pool[start : start + rng.randint(low, high)]

    return make


def moment(suffix: bytes = b"") -> Callable[[random.Random], bytes]:
    return lambda rng: b"2025-%02d-%02d %02d:%02d:%02d.%06d" % (
        rng.randint(1, 12), rng.randint(1, 28), rng.randint(0, 23), rng.randint(0, 59), rng.randint(0, 59),
        rng.randint(1, 9) * 100_000 + rng.randint(1, 9),
    ) + suffix  # fmt: skip


Column = tuple[str, int, int, Callable[[random.Random], bytes]]


def table(oid: int, name: str, keys: int, columns: Sequence[Column]) -> Table:
    described = tuple(RelationColumn(i < keys, c[0], c[1], c[2]) for i, c in enumerate(columns))
    relation = Relation(oid, "public", name, ReplicaIdentity.DEFAULT, described)
    return Table(relation, tuple(column[3] for column in columns))


ORDER_LINE = table(16401, "order_line", 4, [
    ("ol_w_id", INT4, -1, integer(1, 50)), ("ol_d_id", INT4, -1, integer(1, 10)),
    ("ol_o_id", INT4, -1, integer(1, 3_000_000)), ("ol_number", INT4, -1, integer(1, 15)),
    ("ol_i_id", INT4, -1, integer(1, 100_000)), ("ol_delivery_d", TIMESTAMP, -1, moment()),
    ("ol_amount", NUMERIC, numeric(6, 2), money(9999)), ("ol_supply_w_id", INT4, -1, integer(1, 50)),
    ("ol_quantity", INT4, -1, integer(1, 10)), ("ol_dist_info", BPCHAR, chars(24), letters(24, 24)),
])  # fmt: skip

STOCK = table(16402, "stock", 2, [
    ("s_w_id", INT4, -1, integer(1, 50)), ("s_i_id", INT4, -1, integer(1, 100_000)),
    ("s_quantity", INT4, -1, integer(10, 100)), ("s_ytd", NUMERIC, numeric(8, 2), money(99_999)),
    ("s_order_cnt", INT4, -1, integer(0, 500)), ("s_remote_cnt", INT4, -1, integer(0, 50)),
    ("s_data", VARCHAR, chars(50), letters(26, 50)),
    *((f"s_dist_{i:02}", BPCHAR, chars(24), letters(24, 24)) for i in range(1, 11)),
])  # fmt: skip

CUSTOMER = table(16403, "customer", 3, [
    ("c_w_id", INT4, -1, integer(1, 50)), ("c_d_id", INT4, -1, integer(1, 10)), ("c_id", INT4, -1, integer(1, 3000)),
    ("c_discount", NUMERIC, numeric(4, 4), lambda rng: b"0.%04d" % rng.randint(0, 5000)),
    ("c_credit", BPCHAR, chars(2), lambda rng: rng.choice((b"GC", b"BC"))),
    ("c_last", VARCHAR, chars(16), letters(6, 16)), ("c_first", VARCHAR, chars(16), letters(8, 16)),
    ("c_credit_lim", NUMERIC, numeric(12, 2), money(50_000)), ("c_balance", NUMERIC, numeric(12, 2), money(99_999)),
    ("c_ytd_payment", NUMERIC, numeric(12, 2), money(99_999)), ("c_payment_cnt", INT4, -1, integer(1, 100)),
    ("c_delivery_cnt", INT4, -1, integer(0, 100)), ("c_street_1", VARCHAR, chars(20), letters(10, 20)),
    ("c_street_2", VARCHAR, chars(20), letters(10, 20)), ("c_city", VARCHAR, chars(20), letters(10, 20)),
    ("c_state", BPCHAR, chars(2), letters(2, 2)), ("c_zip", BPCHAR, chars(9), integer(100_000_000, 999_999_999)),
    ("c_phone", BPCHAR, chars(16), integer(10**15, 10**16 - 1)), ("c_since", TIMESTAMPTZ, -1, moment(b"+00")),
    ("c_middle", BPCHAR, chars(2), lambda _: b"OE"), ("c_data", VARCHAR, chars(500), letters(500, 500)),
])  # fmt: skip

_WIDE_PATTERN: list[tuple[int, int, Callable[[random.Random], bytes]]] = [
    (INT4, -1, integer(-(10**9), 10**9)), (NUMERIC, numeric(12, 2), money(10**6)), (TEXT, -1, letters(5, 40)),
    (TIMESTAMPTZ, -1, moment(b"+00")), (BOOL, -1, lambda rng: rng.choice((b"t", b"f"))),
    (FLOAT8, -1, lambda rng: repr(rng.random()).encode()), (INT2, -1, integer(0, 30_000)),
    (VARCHAR, chars(16), letters(4, 16)), (INT4, -1, integer(0, 9)), (TIMESTAMP, -1, moment()),
]  # fmt: skip
WIDE = table(16404, "wide", 1, [(f"c{i}", *_WIDE_PATTERN[i % 10]) for i in range(100)])

ORDER_LINES_PER_ORDER = 10


class _Writer:
    """Lays transactions down until a segment is full."""

    def __init__(self, tables: Sequence[Table], limit: int, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.messages: list[bytes] = [encode(table.relation) for table in tables]
        self.lsns = [0] * len(tables)
        self.limit = limit
        self.lsn = 0x1_6B37_4D48
        self.xid = 742
        self.size = 0

    @property
    def full(self) -> bool:
        return self.size >= self.limit

    def transaction(self, changes: list[tuple[bytes, int]]) -> None:
        start, self.xid = self.lsn, self.xid + 1
        self.lsn += 200 * len(changes) + 64
        body = [begin_message(self.lsn, COMMIT_TIME + self.xid, self.xid)]
        body += [message for message, _ in changes]
        body.append(commit_message(0, self.lsn, self.lsn + 48, COMMIT_TIME + self.xid))
        self.messages += body
        self.lsns += [start + 200 * i for i in range(len(body))]
        self.size += sum(map(len, body))

    def batch(self) -> MessageBatch:
        return MessageBatch.of(self.messages, [Lsn(lsn) for lsn in self.lsns])

    def insert(self, table: Table) -> tuple[bytes, int]:
        return encode(Insert(table.id, table.row(self.rng))), table.id

    def update(self, table: Table) -> tuple[bytes, int]:
        return encode(Update(table.id, None, table.row(self.rng))), table.id


def tpcc_batch(limit: int = SEGMENT_BYTES) -> MessageBatch:
    """A segment of TPC-C: per new order one payment and the delivery of one older order."""
    writer = _Writer((ORDER_LINE, STOCK, CUSTOMER), limit)
    while not writer.full:
        lines = range(ORDER_LINES_PER_ORDER)
        writer.transaction([change for _ in lines for change in (writer.update(STOCK), writer.insert(ORDER_LINE))])
        writer.transaction([writer.update(CUSTOMER)])
        writer.transaction([*(writer.update(ORDER_LINE) for _ in lines), writer.update(CUSTOMER)])
    return writer.batch()


def table_batch(of: Table, rows: int, per_transaction: int = 100) -> MessageBatch:
    """`rows` inserts into one table."""
    writer = _Writer((of,), limit=0)
    for start in range(0, rows, per_transaction):
        writer.transaction([writer.insert(of) for _ in range(min(per_transaction, rows - start))])
    return writer.batch()


def wide_batch(limit: int = SEGMENT_BYTES) -> MessageBatch:
    return table_batch(WIDE, limit // 3000)


def rows_per_cpu_second(batch: MessageBatch, of: Table, repeats: int) -> float:
    """The best of several runs. A table bears the envelope's cost in proportion to its share of the messages."""
    best = 0.0
    for _ in range(repeats):
        start = time.process_time()
        around = envelope(batch)
        middle = time.process_time()
        rows = sum(step.changes.num_rows for step in decode_changes(batch, around, of.id, {}))
        end = time.process_time()
        best = max(best, rows / (end - middle + (middle - start) * rows / len(batch)))
    return best


def linearity(rows: Sequence[int] = LINEARITY_ROWS) -> dict[str, float]:
    """CPU-microseconds per row of order_line, for each number of rows; what exceeds a segment goes in segments."""
    largest = min(max(rows), SEGMENT_BYTES // 140)
    segments = {count: table_batch(ORDER_LINE, count) for count in {min(count, largest) for count in rows}}
    _microseconds_per_row(segments[largest], largest)  # the first pass pays for fresh memory
    return {
        # Small counts are over before the clock ticks, and noise is large against them: take the best of several.
        str(count): min(
            _microseconds_per_row(segments[min(count, largest)], count)
            for _ in range(min(20, max(1, 2_000_000 // count)))
        )
        for count in rows
    }


def _microseconds_per_row(batch: MessageBatch, count: int) -> float:
    """Decode the batch again and again until `count` rows are done."""
    start, done = time.process_time(), 0
    while done < count:
        done += sum(step.changes.num_rows for step in decode_changes(batch, envelope(batch), ORDER_LINE.id, {}))
    return (time.process_time() - start) / done * 1e6


def measure(*, limit: int = SEGMENT_BYTES, repeats: int = 7, rows: Sequence[int] = LINEARITY_ROWS) -> dict[str, Any]:
    """All figures: rows per CPU-second by table, CPU-microseconds per row by number of rows.

    `growth` is the last of these over the first: 1 where cost grows as rows do.
    """
    mix, wide = tpcc_batch(limit), wide_batch(limit)
    per_row = linearity(rows)
    return {
        "rows_per_cpu_s": {
            "cols10": rows_per_cpu_second(mix, ORDER_LINE, repeats),
            "cols17": rows_per_cpu_second(mix, STOCK, repeats),
            "cols21_text500": rows_per_cpu_second(mix, CUSTOMER, repeats),
            "cols100": rows_per_cpu_second(wide, WIDE, repeats),
        },
        "us_per_row": per_row,
        "growth": per_row[str(rows[-1])] / per_row[str(rows[0])],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller segments, up to 10^6 rows")
    quick = parser.parse_args().quick
    figures = measure(limit=4 << 20, repeats=3, rows=LINEARITY_ROWS[:3]) if quick else measure()
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
