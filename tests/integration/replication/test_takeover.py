"""A second receiver of one slot, as in a rolling restart: it waits, changes nothing, and goes on in one go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import fsspec
import psycopg
import pytest

from headrace.config.receiver import ReceiverConfig
from headrace.errors import SlotInUse, SpoolInUse
from headrace.lsn import INVALID_LSN, Lsn
from headrace.replication import Receiver
from headrace.spool import Spool
from headrace.testing import PostgresServer, TcpProxy
from receiving import Running, Source


@pytest.fixture
def remote() -> Iterator[str]:
    """A spool at a URI that both receivers reach."""
    uri = f"memory://{uuid4().hex}"
    yield uri
    fsspec.filesystem("memory").rm(uri, recursive=True)


def remote_config(source: Source, uri: str, name: str) -> ReceiverConfig:
    return source.config(uri=uri, staging=source.root / name)


def waiting(second: Running, kind: type[Exception]) -> str:
    """What a receiver that waits says of the one it waits for."""
    told = second.wait(lambda status: isinstance(status.problem, kind))
    assert not told.holds_slot
    assert (told.covered, told.received) == (INVALID_LSN, INVALID_LSN)
    return str(told.problem)


def test_a_second_receiver_on_one_local_spool_waits_and_goes_on(source: Source) -> None:
    with source.receiving() as first:
        first.wait(lambda status: status.holds_slot)
        with source.receiving() as second:
            assert f"process {os.getpid()} on " in waiting(second, SpoolInUse)
            source.insert(1, 10)
            first.stop()
            end = source.insert(11, 20)
            second.wait(lambda status: status.spooled >= end)
    assert source.inserted() == list(range(1, 21))


def test_a_second_receiver_on_a_remote_spool_waits_and_goes_on(source: Source, remote: str) -> None:
    with source.receiving(remote_config(source, remote, "one")) as first:
        end = source.insert(1, 10)
        first.wait(lambda status: status.spooled >= end)
        with source.receiving(remote_config(source, remote, "two")) as second:
            assert "application headrace" in waiting(second, SlotInUse)
            # The first publishes and confirms behind what the second has seen of the spool.
            end = source.insert(11, 20)
            first.wait(lambda status: status.confirmed >= end)
            assert second.status.covered == INVALID_LSN
            first.stop()
            end = source.insert(21, 30)
            second.wait(lambda status: status.spooled >= end)
    assert source.inserted(Spool.open(remote_config(source, remote, "three").spool)) == list(range(1, 31))


def test_what_the_other_published_at_the_last_moment(
    source: Source, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with source.receiving(remote_config(source, remote, "one")) as first:
        first.wait(lambda status: status.holds_slot)
        look = Receiver._next_lsn
        looked = []

        def look_too_early(receiver: Receiver) -> Lsn:
            expected = look(receiver)
            if receiver is not first.receiver and not looked:
                looked.append(expected)
                end = source.insert(1, 10)
                first.wait(lambda status: status.confirmed >= end)
                first.stop()
            return expected

        monkeypatch.setattr(Receiver, "_next_lsn", look_too_early)
        with source.receiving(remote_config(source, remote, "two")) as second:
            second.wait(lambda status: status.holds_slot)
            end = source.insert(11, 20)
            second.wait(lambda status: status.spooled >= end)
    assert looked
    assert source.inserted(Spool.open(remote_config(source, remote, "three").spool)) == list(range(1, 21))


def test_a_receiver_that_was_away_goes_on_behind_another(postgres: PostgresServer, source: Source, remote: str) -> None:
    """The first loses its connection, the second reads on and stops, the first comes back: no gap, nothing twice."""
    with TcpProxy(postgres.port) as proxy:
        through = psycopg.conninfo.make_conninfo(source.conninfo, port=proxy.port)
        with source.receiving(source.config(through, uri=remote, staging=source.root / "one")) as first:
            end = source.insert(1, 10)
            first.wait(lambda status: status.spooled >= end)
            proxy.refuse()
            first.wait(lambda status: status.problem is not None and not status.holds_slot)
            with source.receiving(remote_config(source, remote, "two")) as second:
                end = source.insert(11, 20)
                second.wait(lambda status: status.confirmed >= end)
            proxy.heal()
            end = source.insert(21, 30)
            first.wait(lambda status: status.spooled >= end)
    assert source.inserted(Spool.open(remote_config(source, remote, "three").spool)) == list(range(1, 31))
