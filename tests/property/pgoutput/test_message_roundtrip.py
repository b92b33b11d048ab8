"""Decoder and encoder are each other's inverse, and the decoder never fails in any other way than ProtocolError."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.events import UNCHANGED
from headrace.lsn import Lsn
from headrace.pgoutput import messages as m
from headrace.pgoutput.decoder import decode
from headrace.pgoutput.encoder import encode
from headrace.schema import ReplicaIdentity

CORPUS = Path(__file__).parents[3] / "fuzz" / "corpus"

REAL = [
    (line.split()[0] == "streamed", bytes.fromhex(line.split()[1]))
    for file in sorted(CORPUS.glob("*.hex"))
    for line in file.read_text().splitlines()
]

uint32 = st.integers(0, 2**32 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
lsns = st.integers(0, 2**64 - 1).map(Lsn)
times = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=63)
values = st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=40).map(m.Text))
tuples = st.lists(values, max_size=8).map(tuple)
olds = st.builds(m.OldTuple, st.sampled_from("KO"), tuples)
xids = st.none() | uint32
columns = st.lists(st.builds(m.RelationColumn, st.booleans(), names, uint32, int32), max_size=8).map(tuple)
prepared = (lsns, lsns, times, uint32, names)

messages: st.SearchStrategy[Any] = st.one_of(
    st.builds(m.Begin, lsns, times, uint32),
    st.builds(m.Commit, lsns, lsns, times),
    st.builds(m.Origin, lsns, names),
    st.builds(m.Relation, uint32, names, names, st.sampled_from(ReplicaIdentity), columns, xids),
    st.builds(m.Type, uint32, names, names, xids),
    st.builds(m.Insert, uint32, tuples, xids),
    st.builds(m.Update, uint32, st.none() | olds, tuples, xids),
    st.builds(m.Delete, uint32, olds, xids),
    st.builds(m.Truncate, st.lists(uint32, max_size=5).map(tuple), st.booleans(), st.booleans(), xids),
    st.builds(m.LogicalMessage, st.booleans(), lsns, names, st.binary(max_size=40), xids),
    st.builds(m.StreamStart, uint32, st.booleans()),
    st.builds(m.StreamStop),
    st.builds(m.StreamCommit, uint32, lsns, lsns, times),
    st.builds(m.StreamAbort, uint32, uint32),
    st.builds(m.StreamAbort, uint32, uint32, lsns, times),
    st.builds(m.BeginPrepare, *prepared),
    st.builds(m.Prepare, *prepared),
    st.builds(m.CommitPrepared, *prepared),
    st.builds(m.RollbackPrepared, lsns, lsns, times, times, uint32, names),
    st.builds(m.StreamPrepare, *prepared),
)


@given(messages)
def test_a_message_survives_encoding(message: Any) -> None:
    streamed = getattr(message, "xid", None) is not None
    assert decode(encode(message), streamed=streamed) == message


@pytest.mark.parametrize("index", range(len(REAL)))
def test_a_real_message_survives_decoding(index: int) -> None:
    streamed, payload = REAL[index]
    assert encode(decode(payload, streamed=streamed)) == payload


@given(st.sampled_from(REAL), st.data())
def test_a_mutated_real_message_decodes_or_raises_protocol_error(real: tuple[bool, bytes], data: st.DataObject) -> None:
    streamed, payload = real
    start = data.draw(st.integers(0, len(payload)))
    end = data.draw(st.integers(start, min(len(payload), start + 8)))
    mutated = payload[:start] + data.draw(st.binary(max_size=8)) + payload[end:]
    with contextlib.suppress(ProtocolError):
        message = decode(mutated, streamed=streamed)
        # What is accepted is understood in full: nothing of it is dropped.
        assert encode(message) == mutated


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_decode_or_raise_protocol_error(payload: bytes, streamed: bool) -> None:
    with contextlib.suppress(ProtocolError):
        assert encode(decode(payload, streamed=streamed)) == payload


def test_the_corpus_has_every_kind() -> None:
    assert {payload[:1] for _, payload in REAL} == {bytes([kind]) for kind in b"BCORYIUDTMSEcAbPKrp"}
