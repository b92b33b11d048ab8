"""The replication connection while it streams: contents in, status updates out, never blocking."""

from __future__ import annotations

import re
import select
import time
from typing import Any

import psycopg
from psycopg import pq

from ..config.receiver import StreamConfig
from ..errors import (
    PublicationNotFound,
    SlotInUse,
    SlotInvalidated,
    SlotNotFound,
    SlotUndecodable,
    SourceConnectionFailed,
    SourceError,
)
from ..lsn import Lsn
from ..pgoutput.stream import standby_status_update
from ..pgoutput.timestamps import POSTGRES_EPOCH_MICROS
from ..postgres.connection import connect_replication
from ..postgres.translation import translate, translated_errors
from ..postgres.version import ServerVersion
from ..schema import quote_identifier
from .chunk import Contents
from .source_history import ServerPosition, Timeline

__all__ = ["Wire", "start_command"]

READ_BYTES = 1024 * 1024
"""Bytes after which `read` returns what it has, so that replies are never late."""

_DATA_EXCEPTION = "22"
"""The class of SQLSTATEs for values that an expression or a conversion rejects."""
_ENCODING_STATES = ("22021", "22P05")
_UNCONVERTIBLE = (
    "a text cannot be converted to UTF-8: the database's encoding is SQL_ASCII, or lacks a conversion",
    "correct or remove such texts, or restore the database into one created with ENCODING 'UTF8'",
)
_FAILING_FILTER = (
    "an expression fails for a row, most likely the publication's row filter",
    "correct the row filter with ALTER PUBLICATION … SET TABLE … WHERE (…), so that no row makes it fail",
)

_KEEPALIVE = ord("k")
_REPLY_REQUESTED = 17
"""The byte of a keepalive in which the server asks for an answer at once."""


def start_command(config: StreamConfig, version: ServerVersion, start: Lsn) -> str:
    """START_REPLICATION with the most this server offers."""
    options = {
        "proto_version": str(version.max_proto_version if config.streaming else 1),
        "publication_names": quote_identifier(config.publication_name),
        "messages": "true",
    }
    if config.streaming:
        options["streaming"] = version.streaming
    rendered = ", ".join(f"{name} '{value.replace(chr(39), chr(39) * 2)}'" for name, value in options.items())
    return f"START_REPLICATION SLOT {quote_identifier(config.slot_name)} LOGICAL {start} ({rendered})"


class Wire:
    """One thread uses it. Raises SourceError when the connection ends."""

    def __init__(self, connection: psycopg.Connection[Any], config: StreamConfig) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._config = config
        self._unsent = False
        self.reply_requested = False
        identity = connection.execute("IDENTIFY_SYSTEM").fetchone()
        assert identity is not None
        self.system_id = str(identity[0])

    @classmethod
    def connect(cls, config: StreamConfig, role: str = "receiver") -> Wire:
        connection = connect_replication(config.pg_connection, role, pipeline=config.pipeline_id)
        try:
            return cls(connection, config)
        except psycopg.Error as error:
            connection.close()
            raise translate(error) from error

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def create_temporary_slot(self) -> Lsn:
        """Make the slot for this connection alone: it goes with it. Return the LSN from which it delivers every commit.

        Waits for the transactions that are running now.
        """
        name = quote_identifier(self._config.slot_name)
        command = f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT"
        with translated_errors("cannot create a temporary replication slot"):
            created = self._connection.execute(command.encode()).fetchone()
        assert created is not None
        return Lsn.parse(created[1])

    @property
    def backend_pid(self) -> int:
        """The server process at the other end."""
        return self._pgconn.backend_pid

    def position(self) -> ServerPosition:
        """Ask for the end of the server's WAL, its timeline and that timeline's history. Only before `start`."""
        with translated_errors("cannot read the server's timeline"):
            row = self._connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone()
            identity = self._connection.execute("IDENTIFY_SYSTEM").fetchone()
        assert identity is not None
        timeline = int(identity[1])
        return ServerPosition(
            Timeline.parse(timeline, self._timeline_history(timeline)), Lsn.parse(identity[2]), row == (True,)
        )

    def _timeline_history(self, timeline: int) -> str:
        if timeline == 1:
            return ""
        # The content is sent as it is, but declared as bytea: psycopg would take it for escaped bytes.
        result = self._pgconn.exec_(f"TIMELINE_HISTORY {timeline}".encode())
        if result.status != pq.ExecStatus.TUPLES_OK:
            # A server can lack the file; its timeline's number is then all there is to compare.
            return ""
        return (result.get_value(0, 1) or b"").decode(errors="replace")

    def start(self, lsn: Lsn) -> None:
        """Enter COPY BOTH; from here on only `read`, `send_status` and `wait` are of use."""
        command = start_command(self._config, ServerVersion.of(self._connection), lsn)
        try:
            result = self._pgconn.exec_(command.encode())
        except psycopg.Error as error:
            raise self._error(error) from error
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._error(psycopg.errors.error_from_result(result))
        self._pgconn.nonblocking = 1

    def read(self) -> tuple[Contents, int]:
        """What has arrived, and its size in bytes; empty when nothing has."""
        contents: Contents = []
        size = 0
        get, append = self._pgconn.get_copy_data, contents.append
        try:
            while size < READ_BYTES:
                self._pgconn.consume_input()
                before = size
                # The only loop over messages in the receiver: it does as little as can be done.
                while True:
                    length, data = get(1)
                    if length <= 0:
                        break
                    append(data)
                    size += length
                if length < 0:
                    raise self._ended()
                if size == before:
                    break
        except psycopg.Error as error:
            raise self._error(error) from error
        self._note_reply_request(contents)
        return contents, size

    def _note_reply_request(self, contents: Contents) -> None:
        # A keepalive that waits for an answer is the last thing the server sent: it says nothing more until then.
        if contents and contents[-1][0] == _KEEPALIVE and contents[-1][_REPLY_REQUESTED]:
            self.reply_requested = True

    def send_status(self, written: Lsn, flushed: Lsn, *, reply: bool = False) -> None:
        """Report. `flushed` is a promise: the server may forget everything before it. `reply` asks for an answer."""
        now = time.time_ns() // 1000 - POSTGRES_EPOCH_MICROS
        try:
            self._pgconn.put_copy_data(standby_status_update(written, flushed, flushed, now, reply=reply))
            self._flush()
        except psycopg.Error as error:
            raise self._error(error) from error
        self.reply_requested = False

    def _flush(self) -> None:
        self._unsent = self._pgconn.flush() == 1

    def wait(self, seconds: float, wake: int, *, reading: bool) -> bool:
        """Wait for something to read (if `reading`), for room to write, for a byte on `wake`, or for the time.

        Returns whether there is something to read.
        """
        socket = self._pgconn.socket
        wanted = [wake, socket] if reading else [wake]
        readable, writable, _ = select.select(wanted, [socket] if self._unsent else [], [], max(0.0, seconds))
        if writable:
            try:
                self._flush()
            except psycopg.Error as error:
                raise self._error(error) from error
        return socket in readable

    def _ended(self) -> SourceError:
        result = self._pgconn.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            error = psycopg.errors.error_from_result(result)
            if (error.sqlstate or "").startswith(_DATA_EXCEPTION):
                return self._unsendable(error)
            return self._error(error)
        return SourceConnectionFailed("the server ended the replication stream")

    def _unsendable(self, error: psycopg.Error) -> SlotUndecodable:
        """Explain that the server fails at one row: it decodes WAL with the row filter of that time, again and again.

        The server's own words may quote the row: only the name of its error and the LSN are passed on.
        """
        sqlstate = error.sqlstate or ""
        place = re.search(r"[0-9A-F]+/[0-9A-F]+", error.diag.context or "")
        cause, remedy = _UNCONVERTIBLE if sqlstate in _ENCODING_STATES else _FAILING_FILTER
        return SlotUndecodable(
            f"the server cannot send a row that replication slot {self._config.slot_name} delivers next",
            sqlstate=sqlstate,
            detail=f"SQLSTATE {sqlstate} ({type(error).__name__}){f' at {place[0]}' if place else ''}; {cause}",
            hint=f"{remedy}; the row is in the WAL already, and the slot never passes it: then set "
            "invalidated_slot_behavior to recreate, which makes a new slot and copies all tables again",
        )

    def _error(self, error: psycopg.Error) -> SourceError:
        """What the server says of slots and publications shares SQLSTATEs with other things: there its words decide."""
        text = error.diag.message_primary or ""
        slot, publication = f"replication slot {self._config.slot_name}", self._config.publication_name
        for sqlstate, words, kind, message in (
            ("55006", "", SlotInUse, f"{slot} is read by another process"),
            ("55000", "no longer|cannot read from|invalidated", SlotInvalidated, f"{slot} can deliver no more changes"),
            ("XX000", "", SlotUndecodable, f"the server fails to decode what {slot} delivers next"),
            ("42704", "publication", PublicationNotFound, f"publication {publication} does not exist"),
            ("42704", "slot", SlotNotFound, f"{slot} does not exist"),
        ):
            if error.sqlstate == sqlstate and re.search(words, text):
                detail = " ".join(part for part in (text, error.diag.message_detail) if part)
                return kind(message, sqlstate=sqlstate, detail=detail)
        return translate(error, "the replication stream broke")
