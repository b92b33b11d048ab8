"""Feeds mutated real messages to both decoders until time is up; ends with a traceback at the first surprise.

    python fuzz/fuzz_decoder.py --seconds 20 [--seed 7]

Three things must hold. The message decoder raises ProtocolError or understands every byte. So does the columnar
decoder, with the real types of the columns. And what the columnar decoder reads is what the message decoder reads.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from headrace.errors import ProtocolError
from headrace.events import UNCHANGED
from headrace.pgoutput import messages as m
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.columnar import decode_changes
from headrace.pgoutput.decoder import decode
from headrace.pgoutput.encoder import begin_message, commit_message, encode
from headrace.pgoutput.envelope import envelope
from headrace.schema import PgType

CORPUS = Path(__file__).with_name("corpus")
TEXT = PgType(25, "text")
INTERESTING = [
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\0\0\0\1",
    b"\0\1",
    b"\xff\xff",
    b"n",
    b"u",
    b"t",
    b"b",
]


def read_corpus() -> list[tuple[bool, bytes]]:
    lines = [line.split() for file in sorted(CORPUS.glob("*.hex")) for line in file.read_text().splitlines()]
    return [(mark == "streamed", bytes.fromhex(payload)) for mark, payload in lines]


def mutate(rng: random.Random, payload: bytes) -> bytes:
    data = bytearray(payload)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.randrange(256)
            case 2:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 3:
                del data[at : at + rng.randrange(1, 9)]
            case 4:
                value = rng.choice(INTERESTING)
                data[at : at + len(value)] = value
            case _:
                del data[at:]
    return bytes(data)


def check_message(rng: random.Random, streamed: bool, payload: bytes) -> None:
    try:
        message = decode(payload, streamed=streamed)
    except ProtocolError:
        return
    assert encode(message) == payload, "a part of the message was ignored"


class Table:
    """A relation of the corpus with its changes, and what the columnar decoder makes of mutated ones."""

    def __init__(self, relation: m.Relation, changes: list[bytes]) -> None:
        self.relation = relation
        self.changes = changes
        self.as_text = {column.type_oid: TEXT for column in relation.columns}

    def batch(self, changes: list[bytes]) -> MessageBatch:
        return MessageBatch.of(
            [encode(self.relation), begin_message(9, 9, 9), *changes, commit_message(0, 9, 9, 9)],
            range(len(changes) + 3),
        )

    def check(self, rng: random.Random) -> None:
        changes = [rng.choice(self.changes) for _ in range(rng.randrange(1, 6))]
        victim = rng.randrange(len(changes))
        changes[victim] = mutate(rng, changes[victim])
        self.read(changes, {})
        self.compare(changes)

    def read(self, changes: list[bytes], types: dict[int, PgType]) -> list[dict[str, object]] | None:
        batch = self.batch(changes)
        try:
            found = list(decode_changes(batch, envelope(batch), self.relation.relation_id, types))
        except ProtocolError:
            return None
        for each in found:
            each.changes.validate(full=True)
        return [row for each in found for row in each.changes.to_pylist()]

    def compare(self, changes: list[bytes]) -> None:
        rows = self.read(changes, self.as_text)
        if rows is None:
            return
        # The mutation may have made it another kind, or another table's: then it is not this table's to read.
        table_id = self.relation.relation_id.to_bytes(4, "big")
        own = [decode(payload) for payload in changes if payload[0] in b"IUD" and payload[1:5] == table_id]
        wanted = [change for change in own if isinstance(change, m.Insert | m.Update | m.Delete)]
        assert len(rows) == len(wanted), "rows were lost or made up"
        for row, change in zip(rows, wanted, strict=True):
            self.compare_row(row, change)

    def compare_row(self, row: dict[str, object], change: m.Insert | m.Update | m.Delete) -> None:
        old = None if isinstance(change, m.Insert) else change.old
        new = None if isinstance(change, m.Delete) else change.new
        if new is not None and old is not None and old.kind == "O":
            pairs = zip(new, old.values, strict=True)
            new = tuple(before if value is UNCHANGED else value for value, before in pairs)
        assert row["op"] == type(change).__name__[0], "another operation"
        assert row["old_kind"] == (old.kind if old else None), "another kind of old row"
        assert plain(row["old"]) == (texts(old.values) if old else None), "another old row"
        assert plain(row["row"]) == (texts(new) if new is not None else None), "another row"
        unchanged = [position for position, value in enumerate(new or ()) if value is UNCHANGED]
        assert row["unchanged"] == (unchanged or None), "other unchanged columns"


def plain(row: object) -> list[object] | None:
    return None if row is None else list(row.values())  # type: ignore[attr-defined]


def texts(values: m.TupleData) -> list[str | None]:
    return [value.data.decode() if isinstance(value, m.Text) else None for value in values]


def tables(corpus: list[tuple[bool, bytes]]) -> list[Table]:
    """By relation message, since one OID means another table in another server."""
    found: dict[bytes, tuple[m.Relation, list[bytes]]] = {}
    current: dict[int, bytes] = {}
    for streamed, payload in corpus:
        message = decode(payload, streamed=streamed)
        if isinstance(message, m.Relation) and not streamed:
            current[message.relation_id] = payload
            found.setdefault(payload, (message, []))
        elif isinstance(message, m.Insert | m.Update | m.Delete) and not streamed and message.relation_id in current:
            found[current[message.relation_id]][1].append(payload)
    return [Table(relation, changes) for relation, changes in found.values() if changes]


def fuzz(seconds: float, seed: int) -> int:
    """How many inputs passed; the first that does not raises AssertionError or whatever the decoder raised."""
    corpus = read_corpus()
    known = tables(corpus)
    deadline, count = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        for _ in range(100):
            rng = random.Random(f"{seed}-{count}")
            reproducible(f"--seed {seed}, input {count}", lambda rng=rng: one_input(rng, corpus, known))
            count += 1
    return count


def one_input(rng: random.Random, corpus: list[tuple[bool, bytes]], known: list[Table]) -> None:
    if rng.random() < 0.8:
        streamed, payload = rng.choice(corpus)
        check_message(rng, streamed, mutate(rng, payload))
    else:
        rng.choice(known).check(rng)


def reproducible(name: str, run: Callable[[], None]) -> None:
    try:
        run()
    except BaseException:
        print(f"surprise at {name}", file=sys.stderr)
        raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    count = fuzz(arguments.seconds, arguments.seed)
    print(f"{count} inputs, no surprise (seed {arguments.seed})")


if __name__ == "__main__":
    main()
