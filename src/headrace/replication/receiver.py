"""The receiver: holds the slot, moves what arrives towards the spool, and tells Postgres how far that got.

One thread (the caller's) serves the socket and nothing else; it never waits for the disk. When the spool falls behind
or is full, or someone asked it to pause, it stops reading, and goes on reporting, so that the server neither hangs up
nor loses anything: WAL waits there.
"""

from __future__ import annotations

import os
import random
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from ..config.receiver import ReceiverConfig
from ..errors import (
    HeadraceError,
    RetryPolicy,
    SlotInUse,
    SlotUndecodable,
    SourceConnectionFailed,
    SourceError,
    SpoolCorrupt,
    SpoolGap,
    SpoolInUse,
    SpoolIoError,
)
from ..lsn import INVALID_LSN, Lsn
from ..postgres.connection import connect
from ..postgres.slots import SlotState, require_usable, slot_holder
from ..spool import Spool, SpoolPosition
from ..spool.owner import SpoolOwner, claim, lock
from ..spool.place import LocalPlace
from .feedback import Positions, confirmable
from .source_history import SourceHistory
from .spooling import Spooling
from .watch import SourceWatch
from .wire import Wire

__all__ = ["Receiver", "ReceiverStatus"]

FIRST_RECONNECT_DELAY_S = 0.1
FINISH_TIMEOUT_S = 10.0
GATHER_S = 0.003
HANG_UP_S = 5.0
"""Seconds of not reading after which the connection is given up until there is room. A server that cannot send cannot
end its walsender either, and a checkpoint that wants to invalidate the slot then waits for it."""
SLOT_CHECK_INTERVAL_S = 5.0
TELL_INTERVAL_S = 0.05
"""Seconds between two reports to whoever watches: prompt for a person and a batch, nothing for the receiver."""
REPEAT_INTERVAL_S = 5.0
"""Seconds after which an unchanged status is sent again, so that the parent can detect a frozen receiver."""

TAKEOVER_POLL_S = 1.0
"""Seconds between two tries to take a slot or spool that another process has."""
WAITING_LOG_INTERVAL_S = 60.0

STALE_LISTING_S = 30.0
"""Seconds for which a gap in a remote spool may be due to a stale listing. Only a gap that lasts longer is reported."""

DECODING_TRIES = 5
"""How often the server may fail at one place before the slot is given up. Postgres loses its way in some transactions
that alter tables in savepoints and roll them back: while they run ("could not map filenode"), and then they are decoded
right at their commit; or for good ("unexpected duplicate"), when a table's row of the catalog takes the place of one
that was rolled back. What else is internal to the server may pass."""

_log = structlog.get_logger("headrace.receiver")


@dataclass(frozen=True, slots=True)
class ReceiverStatus:
    """What the receiver tells those who watch it. `state` is connecting, streaming, paused, retrying or stopped."""

    state: str
    received: Lsn = INVALID_LSN
    spooled: Lsn = INVALID_LSN
    covered: Lsn = INVALID_LSN
    applied: Lsn = INVALID_LSN
    confirmed: Lsn = INVALID_LSN
    unapplied_bytes: int = 0
    reconnects: int = 0
    problem: HeadraceError | None = None
    holds_slot: bool = False
    """Whether START_REPLICATION has succeeded, and no error has ended the connection since. Until then another run of
    the pipeline may be at work: nothing may be written to spool, store or destination."""


class _SpoolMoved(Exception):
    """Another receiver wrote to the spool between our look at it and START_REPLICATION."""


class Receiver:
    """`run` works until `stop`, or until an error that trying again does not mend. One per slot."""

    def __init__(self, config: ReceiverConfig, report: Callable[[ReceiverStatus], None] = lambda _: None) -> None:
        self._config = config
        self._report = report
        self._stopping = threading.Event()
        self._pausing = threading.Event()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._spool = Spool.open(config.spool)
        self._spooling: Spooling | None = None
        self._history = SourceHistory(self._spool.place)
        self._watch = SourceWatch(config, self._wake, self._history)
        self._received = self._confirmed = INVALID_LSN
        self._connections = 0
        self._holds_slot = False
        self._waiting_told_at: float | None = None
        self._gap_seen_at: float | None = None
        self._applied = self._hold = INVALID_LSN
        self._status = ReceiverStatus("new")
        self._told_at = 0.0

    # -- commands, from any thread ------------------------------------------------------------------------------

    def apply(self, lsn: Lsn, hold: Lsn | None = None) -> None:
        """Everything before `lsn` is durably applied: it may be confirmed. Segments before `hold` may be released."""
        self._applied = max(self._applied, lsn)
        self._hold = self._applied if hold is None else hold
        if self._spooling is not None:
            self._spooling.apply(self._applied, self._hold)
        self._wake()

    def pause(self) -> None:
        """Read no more until `resume`, in this connection or the next. What was read goes on to the spool."""
        self._pausing.set()
        self._wake()

    def resume(self) -> None:
        """Read on, as far as the spool has room."""
        self._pausing.clear()
        self._wake()

    def stop(self) -> None:
        """Publish what is complete, report it to the server, and return from `run`."""
        self._stopping.set()
        self._wake()

    # -- the socket's thread ------------------------------------------------------------------------------------

    def run(self) -> None:
        self._watch.start()
        held = None
        try:
            self._spool.secure()
            held = self._lock_spool()
            self._stream_until_stopped()
        finally:
            self._watch.close()
            if self._spooling is not None:
                self._spooling.finish(FINISH_TIMEOUT_S)
            if held is not None:
                os.close(held)
            self._tell("stopped")

    def _lock_spool(self) -> int | None:
        """Lock a local spool; wait for a receiver that has it, as in a rolling restart."""
        while not self._stopping.is_set():
            try:
                return lock(self._spool.place, self._config.slot_name)
            except SpoolInUse as error:
                self._wait_for_other(error)
        return None

    def _stream_until_stopped(self) -> None:
        delay = FIRST_RECONNECT_DELAY_S
        config = self._config
        failed_at, failures = INVALID_LSN, 0
        while not self._stopping.is_set():
            self._tell("connecting")
            try:
                self._wait_for_room()
                with Wire.connect(config) as wire:
                    self._attach(wire)
                    delay = FIRST_RECONNECT_DELAY_S
                    self._connections += 1
                    self._stream(wire)
            except _SpoolMoved:
                _log.info("another receiver wrote to the spool; connecting again where it ends")
            except SlotInUse as error:
                self._holds_slot = False
                self._wait_for_other(self._with_holder(error))
            except SlotUndecodable as error:
                self._holds_slot = False
                failures = failures + 1 if self._received == failed_at else 1
                if failures == DECODING_TRIES:
                    raise
                failed_at = self._received
                if failures == 1:
                    _log.warning("reading transactions whole for now", error=str(error))
                config = self._config.model_copy(update={"streaming": False})
                self._wait(error, min(delay * 2**failures, self._config.reconnect_max_delay_ms / 1000))
            except SpoolGap as error:
                self._holds_slot = False
                if not self._may_be_stale_listing():
                    raise
                self._wait(error, delay)
                delay = min(delay * 2, self._config.reconnect_max_delay_ms / 1000)
            except (SourceError, SpoolIoError) as error:
                config = self._config
                self._holds_slot = False
                self._give_up_or_wait(error, delay)
                delay = min(delay * 2, self._config.reconnect_max_delay_ms / 1000)

    def _may_be_stale_listing(self) -> bool:
        """Whether a gap may be due to a listing from an earlier moment, which some object stores and caches return."""
        if isinstance(self._spool.place, LocalPlace):
            return False
        if self._gap_seen_at is None:
            self._gap_seen_at = time.monotonic()
        return time.monotonic() - self._gap_seen_at < STALE_LISTING_S

    def _wait_for_room(self) -> None:
        """Hold no connection while nothing may be read, but look after the slot: it may be lost meanwhile."""
        check_at = time.monotonic() + SLOT_CHECK_INTERVAL_S
        while not self._may_read() and not self._stopping.is_set():
            self._raise_if_dead(self._spooling)
            self._tell("paused", self._spooling.problem if self._spooling else None)
            select.select([self._wake_read], [], [], max(0.0, check_at - time.monotonic()))
            self._drain_wakes()
            # By the clock, not when nothing woke us: tables that go on applying wake us all the time.
            if time.monotonic() >= check_at:
                self._usable_slot()
                check_at = time.monotonic() + SLOT_CHECK_INTERVAL_S

    def _may_read(self) -> bool:
        return not (self._pausing.is_set() or (self._spooling is not None and self._spooling.full))

    def _usable_slot(self) -> SlotState:
        with connect(self._config.pg_connection, "receiver_start", pipeline=self._config.pipeline_id) as connection:
            return require_usable(connection, self._config.slot_name)

    def _give_up_or_wait(self, error: HeadraceError, delay: float) -> None:
        if error.retry is not RetryPolicy.TIMED:
            raise error
        self._wait(error, delay)

    def _wait(self, error: HeadraceError, delay: float) -> None:
        self._tell("retrying", error)
        # Spread out, so that many receivers do not knock at a restarted server at once.
        pause = delay * random.uniform(0.5, 1.0)  # noqa: S311
        _log.warning("retrying", error=str(error), kind=error.kind, hint=error.hint, seconds=round(pause, 2))
        self._stopping.wait(pause)

    def _wait_for_other(self, error: HeadraceError) -> None:
        """Wait a moment for the process that holds slot or spool. Its end is noticed within a second."""
        self._tell("retrying", error)
        now = time.monotonic()
        if self._waiting_told_at is None or now - self._waiting_told_at >= WAITING_LOG_INTERVAL_S:
            self._waiting_told_at = now
            _log.warning("waiting for another run to end", error=str(error), kind=error.kind, hint=error.hint)
        self._stopping.wait(TAKEOVER_POLL_S * random.uniform(0.5, 1.0))  # noqa: S311

    def _with_holder(self, error: SlotInUse) -> SlotInUse:
        """The error with what the server tells of the process that reads the slot."""
        try:
            with connect(self._config.pg_connection, "receiver_start", pipeline=self._config.pipeline_id) as connection:
                holder = slot_holder(connection, self._config.slot_name)
        except SourceError:
            return error
        if holder is None:
            return error
        return SlotInUse(error.message, sqlstate=error.sqlstate, detail=str(holder))

    def _attach(self, wire: Wire) -> None:
        """Take the slot, then the spool. As long as another receiver has the slot, nothing is changed.

        The other one may publish and confirm until the moment it lets the slot go. So the spool is looked at again with
        the slot in hand; if it has moved, the connection starts at the wrong place and is given up for another.
        """
        self._leave_dead_spooling()
        expected = self._next_lsn()
        # Asked behind the look at the spool, to which another receiver may still be writing.
        server = wire.position()
        wire.start(expected)
        if self._prepare(wire.system_id) != expected:
            raise _SpoolMoved
        self._history.continue_from(server, self._confirmed, expected, wire.backend_pid)
        self._holds_slot = True
        self._waiting_told_at = self._gap_seen_at = None

    def _next_lsn(self) -> Lsn:
        """Where to start, as far as can be told without holding the slot."""
        confirmed = self._usable_slot().confirmed_flush_lsn or INVALID_LSN
        position = self._spool_end()
        own = INVALID_LSN if self._spooling is None else self._spooling.reset(self._stopping)
        return max(confirmed, own, INVALID_LSN if position is None else position.covered)

    def _prepare(self, system_id: str) -> Lsn:
        """Check that slot and spool fit together, and say where to start. Only with the slot in hand."""
        slot = self._usable_slot()
        confirmed = slot.confirmed_flush_lsn or INVALID_LSN
        claim(self._spool.place, SpoolOwner(system_id, slot.database or "", self._config.slot_name))
        self._leave_stale_spooling()
        if self._spooling is None:
            self._spool.clean(confirmed)
            self._spooling = self._start_spooling(self._fitting_position(confirmed))
        start = self._spooling.reset(self._stopping)
        if confirmed > start:
            raise self._gap(start, confirmed)
        self._received = max(self._received, start)
        self._confirmed = confirmed
        _log.info("start", slot=self._config.slot_name, lsn=str(start), confirmed=str(confirmed))
        return start

    def _leave_dead_spooling(self) -> None:
        """Begin again where the spool ends if the thread has ended: what it held is sent again."""
        if self._spooling is not None and not self._spooling.alive:
            self._spooling = None

    def _leave_stale_spooling(self) -> None:
        """Begin anew where the spool ends if another receiver went on with it while this one was away."""
        spooling, position = self._spooling, self._spool_end()
        if spooling is not None and position is not None and position.covered > spooling.reset(self._stopping):
            spooling.finish(FINISH_TIMEOUT_S)
            self._spooling = None

    def _fitting_position(self, confirmed: Lsn) -> SpoolPosition:
        position = self._spool_end(verify=True)
        if position is not None and position.covered >= confirmed:
            return position
        if position is not None and self._config.spool.durable:
            raise self._gap(position.covered, confirmed)
        # A spool that never was, or one that is not durable: everything before `confirmed` has been applied.
        self._history.restart()
        self._spool.reset(confirmed)
        return SpoolPosition(confirmed, confirmed)

    def _spool_end(self, *, verify: bool = False) -> SpoolPosition | None:
        """Return where the spool ends; None if a power cut damaged one that is not durable: the server has it all."""
        durable = self._config.spool.durable
        try:
            if verify and not durable and isinstance(self._spool.place, LocalPlace):
                self._spool.verify()
            return self._spool.position()
        except (SpoolCorrupt, SpoolGap) as error:
            if durable:
                raise
            _log.warning(
                "the spool is damaged, and is not durable: reading again what is not applied", error=str(error)
            )
            return None

    def _gap(self, end: Lsn, confirmed: Lsn) -> SpoolGap:
        # The server would go on at `confirmed` without a word: what lies before it is gone from there.
        return SpoolGap(
            f"the spool ends at {end}, but the slot {self._config.slot_name} continues at {confirmed}",
            detail="another reader has used the slot, the slot was created anew, or the spool was put back",
        )

    def _start_spooling(self, position: SpoolPosition) -> Spooling:
        spooling = Spooling(self._spool, self._config.spool, position, self._config.backlog_bytes, self._wake)
        spooling.apply(self._applied, self._hold)
        spooling.start()
        return spooling

    def _stream(self, wire: Wire) -> None:
        spooling = self._spooling
        assert spooling is not None
        interval = self._config.status_interval_ms / 1000
        report_due = hang_up_at = heard_at = time.monotonic()
        readable = False
        while not self._stopping.is_set():
            self._raise_if_dead(spooling)
            reading = self._may_read()
            taken = reading and self._take(wire, spooling)
            now = time.monotonic()
            if taken or readable or not reading:
                heard_at = now
            self._raise_if_silent(now - heard_at)
            if reading:
                hang_up_at = now + HANG_UP_S
            elif now >= hang_up_at:
                return
            if now >= report_due or wire.reply_requested:
                self._send_status(wire, spooling, reply=now - heard_at >= self._config.probe_after_ms / 1000)
                report_due = now + interval
            told = self._tell("streaming" if reading else "paused", spooling.problem)
            if taken:
                # More is on its way. A moment's wait lets it gather, and a read brings hundreds of messages, not ten.
                readable = wire.wait(GATHER_S, self._wake_read, reading=False)
            else:
                patience = report_due - now if told else min(report_due - now, TELL_INTERVAL_S)
                readable = wire.wait(patience, self._wake_read, reading=reading)
            self._drain_wakes()
        self._settle(wire, spooling)

    def _take(self, wire: Wire, spooling: Spooling) -> bool:
        contents, size = wire.read()
        if contents:
            # Header bytes 1 to 8: the position of WAL data, or how far a keepalive says the server has read.
            self._received = max(self._received, Lsn(int.from_bytes(contents[-1][1:9], "big")))
            spooling.put(contents, size)
        return bool(contents)

    def _raise_if_silent(self, seconds: float) -> None:
        """Give up a connection that brings not even the replies that were asked for."""
        if seconds >= self._config.silence_timeout_ms / 1000:
            self._watch.reconnect()
            raise SourceConnectionFailed(
                f"the server has been silent for {seconds:.0f} s, though it was asked for a reply",
                hint="nothing to do if the next connection works; otherwise look at what is between here and the "
                "server: a proxy, load balancer or VPN that keeps dead connections open",
            )

    def _send_status(self, wire: Wire, spooling: Spooling, *, reply: bool = False) -> None:
        confirm = confirmable(spooling.positions, durable_spool=self._config.spool.durable)
        self._confirmed = max(self._confirmed, confirm)
        wire.send_status(max(self._received, self._confirmed), self._confirmed, reply=reply)

    def _settle(self, wire: Wire, spooling: Spooling) -> None:
        """Stopping in order: what is complete is published, and what is published is confirmed."""
        spooling.finish(FINISH_TIMEOUT_S)
        self._send_status(wire, spooling)

    def _raise_if_dead(self, spooling: Spooling | None) -> None:
        if self._watch.problem is not None:
            raise self._watch.problem
        if spooling is not None and not spooling.alive:
            raise spooling.problem or RuntimeError("the spooling thread died") from spooling.failure

    def _tell(self, state: str, problem: HeadraceError | None = None) -> bool:
        """Report to whoever watches, if anything changed and not too often; whether they know it all."""
        spooling = self._spooling
        positions = spooling.positions if spooling else Positions()
        status = ReceiverStatus(
            state,
            received=self._received,
            spooled=positions.spooled,
            covered=positions.covered,
            applied=self._applied,
            confirmed=self._confirmed,
            unapplied_bytes=spooling.unapplied_bytes if spooling else 0,
            reconnects=max(0, self._connections - 1),
            problem=problem,
            holds_slot=self._holds_slot,
        )
        now = time.monotonic()
        if status == self._status and now - self._told_at < REPEAT_INTERVAL_S:
            return True
        if status.state == self._status.state and now - self._told_at < TELL_INTERVAL_S:
            return False
        self._status, self._told_at = status, now
        self._report(status)
        return True

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"!")
        except BlockingIOError:
            return  # the pipe is full of wake-ups already

    def _drain_wakes(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            return
