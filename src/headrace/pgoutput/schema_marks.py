"""Where a table's look may change within a batch: relations that its changes stand under, and messages about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..lsn import Lsn
from . import messages as m
from .batch import MessageBatch
from .columnar import Emitted, logical_messages
from .decoder import decode
from .envelope import Envelope

__all__ = ["Due", "RelationMark", "emitted_for", "relation_marks"]

Due = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[np.bool_]]
"""Which changes count, by their commit LSNs and xids."""

_PREFIX_AT = 10
"""Where the prefix of a logical message begins: behind kind, flags and LSN."""

_IS_CHANGE = np.zeros(256, dtype=bool)
_IS_CHANGE[list(b"IUD")] = True


@dataclass(frozen=True, slots=True)
class RelationMark:
    """From the change at `(commit_lsn, tx_ordinal)` on, the table's changes are of this relation."""

    start_lsn: Lsn
    commit_lsn: Lsn
    tx_ordinal: int
    payload: bytes
    relation: m.Relation


def relation_marks(batch: MessageBatch, envelope: Envelope, table_id: int, due: Due) -> Iterator[RelationMark]:
    """The table's relations, each at the first due change under it; one without any is left out."""
    of_table = envelope.relation_id == table_id
    relations = np.flatnonzero(of_table & (envelope.kind == ord("R"))).tolist()
    changes = np.flatnonzero(of_table & _IS_CHANGE[envelope.kind])
    borders = np.searchsorted(changes, [*relations, len(envelope.kind)]).tolist()
    for index, (start, end) in zip(relations, pairwise(borders), strict=True):
        governed = changes[start:end]
        transaction = envelope.transaction[governed]
        lsns, ordinals = envelope.commit_lsns[transaction], envelope.ordinal[governed]
        counting = np.flatnonzero(due(lsns, envelope.xids[transaction])) if len(governed) else governed
        if len(counting):
            first = counting[0]
            payload = batch.message(index)
            relation = decode(payload)
            assert isinstance(relation, m.Relation)
            start_lsn = Lsn(int(batch.lsns[governed[first]]))
            yield RelationMark(start_lsn, Lsn(int(lsns[first])), int(ordinals[first]), payload, relation)


def emitted_for(batch: MessageBatch, envelope: Envelope, prefix: str) -> Iterator[Emitted]:
    """The transactional logical messages with this prefix, in order."""
    wanted = np.frombuffer(prefix.encode() + b"\0", dtype=np.uint8)
    messages = np.flatnonzero(envelope.kind == ord("M"))
    # A batch may have messages about a thousand tables: those of others are not even decoded.
    at = batch.offsets[messages] + _PREFIX_AT
    fits = at + len(wanted) <= batch.offsets[messages + 1]
    same = (batch.data[at[fits][:, np.newaxis] + np.arange(len(wanted))] == wanted).all(axis=1)
    yield from logical_messages(batch, envelope, messages[fits][same])
