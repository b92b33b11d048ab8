"""The spool on an object store: a real S3 server, real signatures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from awaiting import until
from headrace.errors import RetryPolicy, SpoolIoError
from headrace.lsn import Lsn
from headrace.spool import Spool
from headrace.spool.place import ObjectPlace
from headrace.testing import S3Server
from headrace.testing.postgres import free_port
from receiving import Source


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def test_a_receiver_spools_to_s3_and_goes_on_after_a_restart(
    s3: S3Server, conninfo: str, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    source = Source(conninfo, connection, tmp_path)
    place = {"uri": f"s3://{s3.bucket}/spool", "storage_options": s3.storage_options}
    config = source.config(**place, segment_bytes=64 * 1024, keep_seconds=0)
    for first, last in ((1, 10), (11, 20_000), (20_001, 20_010)):
        with source.receiving(config) as running:
            end = source.insert(first, last, size=100)
            running.wait(lambda status, end=end: status.spooled >= end, 60)
            until(lambda end=end: source.confirmed() >= end)
    spool = Spool.open(config.spool)
    assert source.inserted(spool) == list(range(1, 20_011))
    assert max(len(segment.names) for segment in spool.segments()) > 1
    # Retention works there too
    with source.receiving(config) as running:
        running.receiver.apply(end)
        until(lambda: len(spool.segments()) <= 1)


def test_a_wrong_secret_says_so(s3: S3Server, tmp_path: Path) -> None:
    options = {**s3.storage_options, "secret": "wrong-secret"}
    place = ObjectPlace(f"s3://{s3.bucket}/other", options)
    staged = tmp_path / "x"
    staged.write_bytes(b"x")
    with pytest.raises(SpoolIoError) as caught:
        place.publish(staged, "x")
    assert "wrong-secret" not in str(caught.value)
    assert staged.exists()


def test_a_position_in_s3_is_found_again(s3: S3Server) -> None:
    spool = Spool(ObjectPlace(f"s3://{s3.bucket}/positions", s3.storage_options))
    assert spool.position() is None
    spool.reset(Lsn(4711))
    again = Spool(ObjectPlace(f"s3://{s3.bucket}/positions", s3.storage_options)).position()
    assert again is not None
    assert again.covered == 4711


def test_a_store_that_is_down_is_worth_another_try(s3: S3Server) -> None:
    options = {**s3.storage_options, "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{free_port()}"}}
    place = ObjectPlace(f"s3://{s3.bucket}/nowhere", {**options, "config_kwargs": {"retries": {"max_attempts": 1}}})
    with pytest.raises(SpoolIoError) as caught:
        place.entries()
    assert caught.value.retry is RetryPolicy.TIMED
