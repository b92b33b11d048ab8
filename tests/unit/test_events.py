"""events: values that pickle, a third state that is one of a kind, the union of all of them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from datetime import UTC, datetime
from typing import get_args

import pytest

from headrace.events import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Event,
    Insert,
    OldRowKind,
    Relation,
    Truncate,
    TruncateOptions,
    Update,
)
from headrace.lsn import Lsn
from headrace.schema import Column, PgType, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema

TABLE = TableSchema(1, TableName("public", "t"), (Column("id", 1, PgType(23, "int4"), key_position=1),))
SCHEMA = ReplicatedTableSchema(TABLE, ReplicationMask.everything(TABLE))
LSN = Lsn.parse("0/10")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CHANGE = (LSN, LSN, 0, 700, NOW)

EVENTS: list[Event] = [
    Begin(LSN, LSN, 700, NOW),
    Commit(LSN, LSN, 700, NOW),
    Insert(*CHANGE, SCHEMA, {"id": 1}),
    Update(*CHANGE, SCHEMA, {"id": 1, "v": UNCHANGED}, None, None),
    Delete(*CHANGE, SCHEMA, {"id": 1}, OldRowKind.KEY),
    Truncate(*CHANGE, (SCHEMA,), TruncateOptions.CASCADE | TruncateOptions.RESTART_IDENTITY),
    Relation(LSN, LSN, None, SCHEMA),
]


def test_the_union_has_every_event() -> None:
    assert [type(event) for event in EVENTS] == list(get_args(Event))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_pickles_and_is_frozen(event: Event) -> None:
    assert pickle.loads(pickle.dumps(event)) == event
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, dataclasses.fields(event)[0].name, Lsn(0))


@pytest.mark.parametrize("event", EVENTS[2:6], ids=lambda event: type(event).__name__)
def test_a_change_carries_what_orders_and_identifies_it(event: Insert) -> None:
    assert (event.start_lsn, event.commit_lsn, event.tx_ordinal, event.xid, event.commit_time) == CHANGE


def test_unchanged_stays_itself_and_is_neither_null_nor_text() -> None:
    assert pickle.loads(pickle.dumps(UNCHANGED)) is UNCHANGED
    assert copy.deepcopy(UNCHANGED) is UNCHANGED
    assert repr(UNCHANGED) == "UNCHANGED"
    assert not isinstance(UNCHANGED, str)


def test_protocol_values() -> None:
    assert (OldRowKind("K"), OldRowKind("O")) == (OldRowKind.KEY, OldRowKind.FULL)
    assert TruncateOptions(3) == TruncateOptions.CASCADE | TruncateOptions.RESTART_IDENTITY
