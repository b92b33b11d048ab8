"""An object store that misbehaves under the spool and under the destination's files, and then behaves again.

A proxy in front of a real S3 server makes the faults. When they end, the pipeline catches up by itself: every row of
the source is there, once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from awaiting import until
from headrace.config.parquet import ParquetConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.parquet import ParquetDestination, open_log
from headrace.errors import DestinationError, RetryPolicy
from headrace.lsn import Lsn
from headrace.pipeline.replaying import Replay
from headrace.spool import Spool
from headrace.stores import MemoryStore
from headrace.testing import S3Server
from headrace.testing.example_tables import example_table
from headrace.testing.http_proxy import (
    Fault,
    HttpProxy,
    Matcher,
    answer_lost,
    anything,
    connection_reset,
    listings,
    s3_error,
    slow,
    stale_listings,
    upload_cut,
    uploads,
)
from headrace.testing.local_rows import Inserted, Updated, batch_of, local_rows, transaction
from receiving import Source

Connection = psycopg.Connection[Any]

FAULTS: dict[str, tuple[Callable[[HttpProxy], Fault], Matcher]] = {
    "internal error": (lambda _: s3_error(500, "InternalError"), anything),
    "slow down": (lambda _: s3_error(503, "SlowDown"), anything),
    "slow": (lambda _: slow(1), anything),
    "no connection": (lambda _: connection_reset, anything),
    "cut uploads": (lambda _: upload_cut, uploads),
    "lost answers": (lambda _: answer_lost, uploads),
    "stale listings": (stale_listings, listings),
    "expired token": (lambda _: s3_error(400, "ExpiredToken", "The provided token has expired."), anything),
    "denied": (lambda _: s3_error(403, "AccessDenied", "Access Denied."), anything),
}
MOST_ATTEMPTS = 20
QUICK = ("slow down", "cut uploads")


def faults(*quick: str) -> Any:
    return pytest.mark.parametrize(
        "fault", [name if name in quick else pytest.param(name, marks=pytest.mark.long) for name in FAULTS]
    )


pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[HttpProxy]:
    with HttpProxy(s3.port) as proxy:
        yield proxy


def spool_settings(s3: S3Server, port: int, prefix: str) -> dict[str, Any]:
    """A spool on S3, by a client that gives up at once: what is tested is what happens then."""
    options = s3.storage_options
    options["client_kwargs"]["endpoint_url"] = f"http://127.0.0.1:{port}"
    options["config_kwargs"] = {"retries": {"max_attempts": 1}, "read_timeout": 5}
    return {"uri": f"s3://{s3.bucket}/{prefix}", "storage_options": options}


@faults(*QUICK)
def test_a_receiver_writes_its_spool(
    fault: str, s3: S3Server, proxy: HttpProxy, conninfo: str, connection: Connection, tmp_path: Path
) -> None:
    source, (make, matches) = Source(conninfo, connection, tmp_path), FAULTS[fault]
    settings = spool_settings(s3, proxy.port, connection.info.dbname)
    config = source.config(**settings, segment_bytes=64 * 1024, keep_seconds=0)
    with source.receiving(config) as running:
        end = source.insert(1, 10)
        running.wait(lambda status: status.spooled >= end, 60)
        with proxy.misbehaving(make(proxy), matches):
            # In several parts
            source.insert(11, 3000, size=100)
            # Retention lists the spool, once there is something to release.
            running.receiver.apply(end)
            until(lambda: proxy.met > 0)
            source.insert(3001, 3010)
        end = source.insert(3011, 3020)
        running.wait(lambda status: status.spooled >= end, 60)
        until(lambda: source.confirmed() >= end)
        assert running.error is None
    # Read without the proxy
    spool = Spool.open(source.config(**spool_settings(s3, s3.port, connection.info.dbname)).spool)
    # The first transaction was applied, and may be released.
    assert [key for key in source.inserted(spool) if key > 10] == list(range(11, 3021))
    spool.verify()


@faults()
def test_a_receiver_starts_on_its_spool(
    fault: str, s3: S3Server, proxy: HttpProxy, conninfo: str, connection: Connection, tmp_path: Path
) -> None:
    source, (make, matches) = Source(conninfo, connection, tmp_path), FAULTS[fault]
    config = source.config(**spool_settings(s3, proxy.port, connection.info.dbname), segment_bytes=64 * 1024)
    with source.receiving(config) as running:
        end = source.insert(1, 10)
        running.wait(lambda status: status.spooled >= end, 60)
        Spool.open(config.spool).segments()
        # A stale listing is from here.
        made = make(proxy)
        end = source.insert(11, 3000, size=100)
        running.wait(lambda status: status.spooled >= end, 60)
        until(lambda: source.confirmed() >= end)
    with contextlib.ExitStack() as stack:
        with proxy.misbehaving(made, matches):
            running = stack.enter_context(source.receiving(config))
            source.insert(3001, 3010)
            until(lambda: running.error is not None or proxy.met > 6)
        end = source.insert(3011, 3020)
        running.wait(lambda status: status.spooled >= end, 60)
    spool = Spool.open(source.config(**spool_settings(s3, s3.port, connection.info.dbname)).spool)
    assert source.inserted(spool) == list(range(1, 3021))
    spool.verify()


ORDERS = example_table(1, "orders", {"id": "int8", "note": "text"}, ("id",))


class StoredLog:
    """A log of Parquet files on S3, written through a proxy, and read without it."""

    def __init__(self, s3: S3Server, proxy: HttpProxy, prefix: str) -> None:
        through, self._direct = spool_settings(s3, proxy.port, prefix), spool_settings(s3, s3.port, prefix)
        self._config = ParquetConfig(location=through["uri"], storage_options=through["storage_options"])
        self.errors: list[DestinationError] = []
        self.expected: dict[int, str] = {}
        self.start()

    def start(self) -> None:
        """Begin another run, which claims the log."""
        self.destination = ParquetDestination(self._config)
        self._until_done(lambda: self.destination.startup(DestinationContext(1, MemoryStore(), None)))
        self._until_done(self.destination.claim)

    def copy(self, part: int, keys: range) -> None:
        rows = [{"id": key, "note": "copied"} for key in keys]
        self._until_done(lambda: self.destination.write_table_rows(ORDERS, local_rows(ORDERS, rows), part))
        self.expected |= dict.fromkeys(keys, "copied")

    def stream(self, number: int) -> None:
        added, changed = {"id": 1000 + number, "note": "new"}, {"id": number, "note": "changed"}
        happened = transaction(Lsn(100 * number), Inserted(ORDERS, added), Updated(ORDERS, changed))
        batch = batch_of(happened, end=Lsn(100 * number + 50), start=Lsn(0))
        self._until_done(lambda: self.destination.write_events(batch))
        self.expected |= {1000 + number: "new", number: "changed"}

    def _until_done(self, work: Callable[[], object]) -> None:
        """Retry as the pipeline does."""
        for _ in range(MOST_ATTEMPTS):
            try:
                work()
            except DestinationError as error:
                self.errors.append(error)
                self.on_failure()
            else:
                return
        pytest.fail(f"never done: {self.errors[-1]}")

    def on_failure(self) -> None:
        """Do what a test puts here."""

    def assert_equal(self) -> None:
        """Replay the log elsewhere, and compare all rows."""
        log = open_log(self._direct["uri"], self._direct["storage_options"])
        destination, store = MemoryDestination(), MemoryStore()
        Replay(log, destination, DestinationContext(1, store, None), store).run()
        found = destination.rows("public.orders").to_pylist()
        assert sorted((row["id"], row["note"]) for row in found) == sorted(self.expected.items())


def _close_on_second(calls: list[None], stack: contextlib.ExitStack) -> None:
    calls.append(None)
    if len(calls) > 1:
        stack.close()


@faults("expired token")
def test_a_log_of_parquet_files(fault: str, s3: S3Server, proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    make, matches = FAULTS[fault]
    log = StoredLog(s3, proxy, f"log-{fault.replace(' ', '-')}")
    log.copy(0, range(1, 20))
    log.stream(1)
    for number, start_again in ((2, False), (4, True)):
        with contextlib.ExitStack() as stack:
            stack.enter_context(proxy.misbehaving(make(proxy), matches))
            # The store behaves again when the second attempt has failed.
            monkeypatch.setattr(log, "on_failure", partial(_close_on_second, [], stack))
            if start_again:
                log.start()
            log.stream(number)
            log.copy(number, range(10 * number, 10 * number + 10))
        log.stream(number + 1)
        log.assert_equal()
    assert proxy.met > 0
    assert log.destination.applied_lsn(ORDERS) == Lsn(550)
    assert {error.retry for error in log.errors} <= {RetryPolicy.TIMED}
    assert s3.secret_key not in "".join(f"{error} {error.detail}" for error in log.errors)
