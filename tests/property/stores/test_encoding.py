"""encoding: whatever a catalog can say of a table comes back as it was."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RetryPolicy
from headrace.lsn import Lsn
from headrace.schema import (
    Column,
    PgType,
    ReplicaIdentity,
    ReplicatedTableSchema,
    ReplicationMask,
    TableName,
    TableSchema,
)
from headrace.stores.encoding import (
    decode_mask,
    decode_schema,
    decode_state,
    encode_mask,
    encode_schema,
    encode_state_detail,
)
from headrace.table_state import State, TableState

oids = st.integers(1, (1 << 32) - 1)
typmods = st.integers(-1, (1 << 31) - 1)
# With lone surrogates: an error's text may hold anything.
texts = st.text(st.characters(exclude_categories=()), max_size=20)
attnums = st.integers(1, 1600)

plain_types = st.builds(
    PgType, oids, texts, texts, st.sampled_from("bcdempr"), delimiter=st.sampled_from(",;"), as_text=st.booleans()
)
types = st.recursive(
    plain_types,
    lambda inner: st.builds(PgType, oids, texts, texts, st.just("d"), inner | st.none(), inner | st.none(), typmods),
    max_leaves=4,
)
columns = st.builds(
    Column, texts, attnums, types, typmods, st.booleans(), texts | st.none(), attnums | st.none(), st.booleans()
)
masks = st.builds(ReplicationMask, st.frozensets(attnums, max_size=20))
tables = st.builds(
    TableSchema,
    oids,
    st.builds(TableName, texts, texts),
    st.lists(columns, max_size=6, unique_by=lambda column: column.attnum).map(tuple),
    st.sampled_from(ReplicaIdentity),
    st.lists(attnums, max_size=4).map(tuple),
)
lsns = st.builds(Lsn, st.integers(0, (1 << 64) - 1))
states = st.one_of(
    st.sampled_from([TableState(State.INIT), TableState(State.READY)]),
    st.builds(TableState, st.just(State.SYNC_DONE), lsns),
    st.builds(TableState, st.just(State.ERRORED), st.none(), texts, texts | st.none(), st.sampled_from(RetryPolicy)),
)


@given(st.builds(ReplicatedTableSchema, tables, masks, texts | st.none()))
def test_a_schema_survives(schema: ReplicatedTableSchema) -> None:
    text = encode_schema(schema)
    assert decode_schema(text) == schema
    assert encode_schema(decode_schema(text)) == text
    assert text.isascii()
    assert json.loads(text)["format"] == 1


@given(masks)
def test_a_mask_survives(mask: ReplicationMask) -> None:
    assert decode_mask(encode_mask(mask)) == mask


@given(states)
def test_a_state_survives(state: TableState) -> None:
    assert decode_state(state.state.value, encode_state_detail(state)) == state
