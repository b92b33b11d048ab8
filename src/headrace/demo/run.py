"""The demo, from an empty directory to the proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg

from ..config.pipeline import PipelineConfig
from ..errors import PipelineError, RetryPolicy
from ..lsn import Lsn
from ..pipeline import Pipeline, PipelineStatus
from ..pipeline.build import build_destination, build_store
from ..postgres.connection import parse_conninfo
from ..spark.java import find_java
from ..table_state import State
from .directory import SERVER, claimed
from .interrupts import Interrupts
from .lakehouses import LAKEHOUSES, DemoLakehouse
from .log_file import logged_to
from .proof import TableProof, prove_table
from .server import DemoServer
from .shop import DATABASE, PUBLICATION, TABLES, Shop, create_database, create_shop
from .traffic import Traffic

__all__ = ["DemoReport", "DemoScreen", "DemoSettings", "Frame", "run_demo"]

_FRAME_S = 0.25
# A batch under way takes a second or two. Nothing is lost by cutting off a demo that the user left.
_STOP_S = 60.0
_LEAVE_S = 2.0
# What two cores apply in seconds; a demo that hangs must say so.
_APPLY_S = 300.0
_ATTEMPTS = 3

Frame = Callable[[PipelineStatus, str], None]
"""Shows a moment of the pipeline, and what is being done."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What a user may choose."""

    directory: Path = Path("headrace-demo")
    rows: int = 200_000
    seconds: float = 30.0
    """Of traffic, after all tables are copied."""
    keep: bool = False
    """Go on until a signal comes, then prove."""
    destination: str = "iceberg"
    """One of `LAKEHOUSES`."""


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What a demo found, and where."""

    directory: Path
    lakehouse: DemoLakehouse
    proofs: tuple[TableProof, ...]
    seconds: float

    @property
    def equal(self) -> bool:
        return all(proof.equal for proof in self.proofs)


class DemoScreen(Protocol):
    """Where the demo is seen."""

    def done(self, what: str, seconds: float) -> None:
        """A step is done."""

    def doing(self, what: str) -> AbstractContextManager[object]:
        """A step that takes a while is under way."""

    def live(self, config: PipelineConfig) -> AbstractContextManager[Frame]:
        """The pipeline is running; the frame is called a few times a second."""


def run_demo(settings: DemoSettings, screen: DemoScreen, interrupts: Interrupts) -> DemoReport:
    """Run it all and compare. Postgres and the traffic have ended after it; what Spark started is the caller's to end.

    Raises:
        Interrupted: a signal came. The pipeline may still be at its end: nobody needs its result any more.
        HeadraceError: it could not be run.
    """
    began = time.monotonic()
    with claimed(settings.directory) as directory, logged_to(directory / "headrace.log"):
        demo = _Demo(settings, screen, interrupts, directory)
        try:
            # What is missing is told before anything is started.
            find_java()
            with demo.server() as server, psycopg.connect(server.conninfo(DATABASE), autocommit=True) as connection:
                shop = demo.shop(connection)
                demo.replicate(connection, server.conninfo(DATABASE), shop)
                proofs = demo.prove(connection)
        except Exception:
            # Ctrl-C on a terminal is also heard by programs that were just asked something, and fail by it.
            interrupts.check()
            raise
        return DemoReport(directory, demo.lakehouse, proofs, time.monotonic() - began)


class _Demo:
    """The steps, in their order."""

    def __init__(self, settings: DemoSettings, screen: DemoScreen, interrupts: Interrupts, directory: Path) -> None:
        self._settings, self._screen, self._interrupts, self._directory = settings, screen, interrupts, directory
        self.lakehouse = LAKEHOUSES[settings.destination]

    @contextmanager
    def _step(self, what: str) -> Iterator[list[str]]:
        """What the step did is put into the list, and shown with the time it took."""
        began, did = time.monotonic(), list[str]()
        with self._screen.doing(what):
            yield did
        self._screen.done(" ".join(did) or what, time.monotonic() - began)
        self._interrupts.check()

    @contextmanager
    def server(self) -> Iterator[DemoServer]:
        server = DemoServer(self._directory / SERVER, self._interrupts)
        try:
            with self._step("starting a Postgres") as did:
                server.start()
                create_database(server.conninfo())
                did.append(f"Postgres 18 runs on 127.0.0.1:{server.port}")
            yield server
        finally:
            server.stop()

    def shop(self, connection: psycopg.Connection[Any]) -> Shop:
        shop = Shop.of_size(self._settings.rows)
        with self._step("filling the shop") as did:
            create_shop(connection, shop, self._interrupts)
            did.append(f"a shop with {shop.rows:,} rows in {len(TABLES)} tables is in it")
        return shop

    def config(self, conninfo: str) -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "id": 1,
                "publication_name": PUBLICATION,
                "pg_connection": parse_conninfo(conninfo),
                "data_dir": self._directory / "pipeline",
                "destination": {"kind": self._settings.destination, **self.lakehouse.settings(self._directory)},
                "spark": {"master": "local[2]", "driver_memory": "1g", "short_lived": True},
                "replication_lag_refresh_interval_ms": 1000,
            }
        )

    def replicate(self, connection: psycopg.Connection[Any], conninfo: str, shop: Shop) -> None:
        """Copy and stream while the traffic runs; then until nothing is left to apply."""
        config = self.config(conninfo)
        destination = build_destination(config)
        store = build_store(config)
        pipeline = Pipeline(config, store, destination)
        try:
            with Traffic(conninfo, shop) as traffic, self._screen.live(config) as frame:
                self._run(_Shown(pipeline, frame, self._interrupts), traffic, connection)
        finally:
            with closing(store):
                pipeline.stop(_LEAVE_S if self._interrupts.asked else _STOP_S)
        pipeline.wait(_STOP_S)

    def _run(self, shown: _Shown, traffic: Traffic, connection: psycopg.Connection[Any]) -> None:
        began = time.monotonic()
        shown.pipeline.start()
        shown.until(_all_ready, lambda: f"{shown.beginning()}; {traffic.transactions:,} transactions so far")
        copied = time.monotonic()
        self._screen.done("all tables are copied, with transactions going on (Spark's start included)", copied - began)
        self._stream(shown, traffic, copied)
        traffic.stop()
        stopped = time.monotonic()
        self._screen.done(f"changes streamed; {traffic.transactions:,} transactions in all", stopped - copied)
        end = _marker(connection)
        shown.until(lambda status: _applied(status, end), lambda: "no more transactions; applying the last", _APPLY_S)
        self._screen.done("the last change is applied", time.monotonic() - stopped)

    def _stream(self, shown: _Shown, traffic: Traffic, copied: float) -> None:
        def doing() -> str:
            left = "Ctrl-C ends them" if self._settings.keep else f"{max(0.0, until - time.monotonic()):.0f} s to go"
            return f"streaming; {traffic.transactions:,} transactions so far, {left}"

        until = copied + self._settings.seconds
        if self._settings.keep:
            shown.until(lambda _: self._interrupts.take(), doing, heed=False)
        else:
            shown.until(lambda _: time.monotonic() >= until, doing)

    def prove(self, connection: psycopg.Connection[Any]) -> tuple[TableProof, ...]:
        with self._step("comparing every row") as did:
            read = self.lakehouse.reader(self._directory)
            proofs = []
            for table in TABLES:
                self._interrupts.check()
                proofs.append(prove_table(connection, read, f"shop.{table}"))
            did.append(f"all rows of source and lakehouse are compared, read by COPY and by {self.lakehouse.read_by}")
        return tuple(proofs)


class _Shown:
    """A running pipeline on the screen."""

    def __init__(self, pipeline: Pipeline, frame: Frame, interrupts: Interrupts) -> None:
        self.pipeline = pipeline
        self._frame, self._interrupts = frame, interrupts

    def beginning(self) -> str:
        return "copying" if self.pipeline.status.tables else "starting Spark, which fetches its jars the first time"

    def until(
        self,
        condition: Callable[[PipelineStatus], bool],
        doing: Callable[[], str],
        timeout: float | None = None,
        *,
        heed: bool = True,
    ) -> None:
        """Show it until the condition holds. Raises what ends the pipeline, and Interrupted unless told not to heed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not condition(status := self.pipeline.status):
            self._frame(status, doing())
            if self.pipeline.wait(_FRAME_S):
                msg = "the pipeline ended before its time"
                raise PipelineError(msg, hint="see headrace.log in the demo's directory")
            _refuse_failed(status)
            if heed:
                self._interrupts.check()
            if deadline is not None and time.monotonic() > deadline:
                msg = f"not all changes were applied within {timeout:g} s"
                raise PipelineError(msg, hint="see headrace.log in the demo's directory")


def _all_ready(status: PipelineStatus) -> bool:
    return bool(status.tables) and all(table.state.state is State.READY for table in status.tables.values())


def _applied(status: PipelineStatus, end: Lsn) -> bool:
    return _all_ready(status) and all(table.position > end for table in status.tables.values())


def _refuse_failed(status: PipelineStatus) -> None:
    """A table that no retry mends ends the demo."""
    for table in status.tables.values():
        timed = table.state.retry_policy is RetryPolicy.TIMED
        if table.state.state is State.ERRORED and (not timed or table.attempts >= _ATTEMPTS):
            msg = f"table {table.name} failed"
            raise PipelineError(msg, detail=table.state.reason, hint=table.state.solution)


def _marker(connection: psycopg.Connection[Any]) -> Lsn:
    """A place in the WAL behind all that was committed before; a message makes sure that the stream passes it."""
    row = connection.execute("SELECT pg_logical_emit_message(true, 'demo', 'end of traffic')::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])
