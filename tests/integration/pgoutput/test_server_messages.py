"""Every kind of message, from a real server of the version under test."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from capture import Captured
from every_kind import TWO_PHASE, capture_every_kind

from headrace.lsn import Lsn
from headrace.pgoutput import messages as m
from headrace.pgoutput.decoder import decode
from headrace.pgoutput.encoder import begin_message, commit_message, encode
from headrace.pgoutput.timestamps import datetime_from_postgres
from headrace.testing import DEFAULT_VERSION, PostgresServer

pytestmark = pytest.mark.matrix


@pytest.fixture(scope="module")
def captured() -> Iterator[list[Captured]]:
    with (
        PostgresServer(DEFAULT_VERSION, settings=TWO_PHASE) as server,
        server.database() as conninfo,
        psycopg.connect(conninfo, autocommit=True) as connection,
    ):
        yield capture_every_kind(connection, DEFAULT_VERSION)


@pytest.fixture(scope="module")
def decoded(captured: list[Captured]) -> list[m.Message]:
    return [decode(one.payload, streamed=one.streamed) for one in captured]


def test_every_kind_this_version_knows_is_there(captured: list[Captured]) -> None:
    kinds = "BCORYIUDTMSEcA" + ("bPKrp" if DEFAULT_VERSION >= 15 else "")
    assert {one.kind for one in captured} == set(kinds)


def test_every_message_is_understood_byte_for_byte(captured: list[Captured], decoded: list[m.Message]) -> None:
    for one, message in zip(captured, decoded, strict=True):
        assert encode(message) == one.payload


def test_begin_and_commit_are_written_as_the_server_writes_them(
    captured: list[Captured], decoded: list[m.Message]
) -> None:
    pairs = list(zip(captured, decoded, strict=True))
    begins = [(one, message) for one, message in pairs if isinstance(message, m.Begin)]
    commits = [(one, message) for one, message in pairs if isinstance(message, m.Commit)]
    assert begins
    assert len(begins) == len(commits)
    for (begin_bytes, begin), (commit_bytes, commit) in zip(begins, commits, strict=True):
        assert begin_message(begin.final_lsn, begin.commit_time, begin.xid) == begin_bytes.payload
        # A streamed transaction's Stream Commit has all that these two need.
        assert commit_message(0, begin.final_lsn, commit.end_lsn, begin.commit_time) == commit_bytes.payload


def test_streamed_changes_carry_the_xid_of_their_subtransaction(decoded: list[m.Message]) -> None:
    start = next(message for message in decoded if isinstance(message, m.StreamStart))
    abort = next(message for message in decoded if isinstance(message, m.StreamAbort))
    xids = {message.xid for message in decoded if isinstance(message, m.Insert) and message.xid is not None}
    assert start.first_segment
    assert abort.xid == start.xid
    assert abort.subxid != abort.xid
    assert {start.xid, abort.subxid} <= xids


def test_an_abort_has_its_position_from_16_on(decoded: list[m.Message]) -> None:
    abort = next(message for message in decoded if isinstance(message, m.StreamAbort))
    assert (abort.abort_lsn is not None) == (DEFAULT_VERSION >= 16)


def test_commit_times_are_this_year(decoded: list[m.Message]) -> None:
    commit = next(message for message in decoded if isinstance(message, m.Commit))
    assert datetime_from_postgres(commit.commit_time).year >= 2025


def test_names_and_positions(decoded: list[m.Message]) -> None:
    relations = {message.name: message for message in decoded if isinstance(message, m.Relation)}
    assert relations['Odd " näme'].columns == ()
    assert [column.key for column in relations["item"].columns] == [True] + [False] * 6
    assert m.Origin(Lsn.parse("0/ABCDEF"), "elsewhere") in decoded
    emitted = [message.content for message in decoded if isinstance(message, m.LogicalMessage)]
    assert b"in a stream" in emitted
    truncate = next(message for message in decoded if isinstance(message, m.Truncate))
    assert (truncate.cascade, truncate.restart_identity, len(truncate.relation_ids)) == (True, True, 2)
