"""Which transaction each message of a batch belongs to, and its place there: once per batch, for all its tables.

A batch is in pgoutput's protocol 1 form, so its kinds are B C O R Y I U D T M; anything else, and a change outside a
transaction, raises ProtocolError.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import ProtocolError
from .batch import PADDING, MessageBatch
from .timestamps import POSTGRES_EPOCH_MICROS
from .unaligned import big_endian

__all__ = ["Envelope", "envelope"]

BEGIN, COMMIT, LOGICAL_MESSAGE = b"BCM"

# The shortest message of each kind; 0 marks a kind that a batch cannot hold.
_SHORTEST = np.zeros(256, dtype=np.int64)
for _kind, _size in {"B": 21, "C": 26, "O": 10, "R": 10, "Y": 7, "I": 8, "U": 8, "D": 8, "T": 6, "M": 15}.items():
    _SHORTEST[ord(_kind)] = _size

_HAS_RELATION_ID = np.zeros(256, dtype=bool)
_HAS_RELATION_ID[list(b"IUDR")] = True

# Transactional logical messages count too; whether one is, its flags say.
_COUNTS = np.zeros(256, dtype=bool)
_COUNTS[list(b"IUDT")] = True

_MAX_INT64 = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """Per message: `kind`, `relation_id` (0 where there is none), `transaction` (-1 outside one), `ordinal` (-1 where
    it does not count). Per transaction: `commit_lsns`, `xids`, `commit_times` (microseconds since the Unix epoch).
    """

    kind: npt.NDArray[np.uint8]
    relation_id: npt.NDArray[np.uint32]
    transaction: npt.NDArray[np.int64]
    ordinal: npt.NDArray[np.int64]
    commit_lsns: npt.NDArray[np.int64]
    xids: npt.NDArray[np.int64]
    commit_times: npt.NDArray[np.int64]


def envelope(batch: MessageBatch) -> Envelope:
    """Read the transactions of a batch; ProtocolError if its messages do not make whole transactions in order."""
    starts, kind = _kinds(batch)
    begins, edges = _transaction_edges(kind)
    transaction = np.repeat(_alternating(len(begins)), np.diff(edges))
    counts = _counts(batch, starts, kind)
    if (counts & (transaction < 0)).any():
        msg = "a change stands outside any transaction"
        raise ProtocolError(msg)
    return Envelope(
        kind,
        np.where(_HAS_RELATION_ID[kind], big_endian(batch.data, 4)[starts + 1], 0).astype(np.uint32),
        transaction,
        _ordinals(counts, begins, transaction, batch.first_ordinal),
        *_begins(batch, starts[begins]),
    )


def _kinds(batch: MessageBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    sizes = np.diff(batch.offsets)
    if len(sizes) and (batch.offsets[0] < 0 or (sizes <= 0).any() or batch.offsets[-1] + PADDING > len(batch.data)):
        msg = "the offsets of a message batch do not fit its data"
        raise ProtocolError(msg)
    starts = batch.offsets[:-1]
    kind = batch.data[starts]
    shortest = _SHORTEST[kind]
    if (shortest == 0).any():
        msg = f"a message batch holds kind {chr(kind[np.argmin(shortest)])!r}, which protocol 1 does not have"
        raise ProtocolError(msg)
    if (sizes < shortest).any():
        msg = f"malformed pgoutput message of kind {chr(kind[np.argmax(sizes < shortest)])!r}"
        raise ProtocolError(msg, detail="it is cut short")
    return starts, kind


def _transaction_edges(kind: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where transactions begin, and all edges between "outside" and "inside", the last one possibly without Commit."""
    borders = np.flatnonzero((kind == BEGIN) | (kind == COMMIT))
    begins, commits = borders[0::2], borders[1::2]
    if (kind[begins] != BEGIN).any() or (kind[commits] != COMMIT).any():
        msg = "Begin and Commit do not alternate"
        raise ProtocolError(msg)
    edges = np.empty(2 * len(begins) + 2, dtype=np.int64)
    edges[0], edges[-1] = 0, len(kind)
    edges[1:-1:2] = begins
    edges[2:-1:2] = len(kind)
    edges[2 : 2 * len(commits) + 1 : 2] = commits + 1
    return begins, edges


def _alternating(count: int) -> npt.NDArray[np.int64]:
    """-1 0 -1 1 -1 2 … -1: outside, in the first transaction, outside, in the second, …"""
    numbers = np.full(2 * count + 1, -1, dtype=np.int64)
    numbers[1::2] = np.arange(count)
    return numbers


def _counts(batch: MessageBatch, starts: npt.NDArray[np.int64], kind: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    counts = _COUNTS[kind]
    emitted = np.flatnonzero(kind == LOGICAL_MESSAGE)
    counts[emitted] = batch.data[starts[emitted] + 1] & 1
    return counts


def _ordinals(
    counts: npt.NDArray[np.bool_],
    begins: npt.NDArray[np.int64],
    transaction: npt.NDArray[np.int64],
    first_ordinal: int,
) -> npt.NDArray[np.int64]:
    running = np.cumsum(counts, dtype=np.int64)
    # What was counted before each transaction; the last entry serves the messages outside, which is then masked.
    before = np.zeros(len(begins) + 1, dtype=np.int64)
    before[:-1] = running[begins]
    before[:1] -= first_ordinal
    return np.where(counts, running - 1 - before[transaction], -1)


def _begins(
    batch: MessageBatch, starts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    lsns = big_endian(batch.data, 8)[starts + 1].astype(np.uint64)
    times = big_endian(batch.data, 8)[starts + 9].astype(np.uint64).view(np.int64)
    xids = big_endian(batch.data, 4)[starts + 17].astype(np.int64)
    if (lsns > _MAX_INT64).any() or (times > _MAX_INT64 - POSTGRES_EPOCH_MICROS).any():
        msg = "malformed pgoutput message of kind 'B'"
        raise ProtocolError(msg, detail="its LSN or commit time is out of range")
    return lsns.view(np.int64), xids, times + POSTGRES_EPOCH_MICROS
