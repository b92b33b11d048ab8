"""asyncpg's connections, made to be like those of `postgres.connection`: settings, timeouts, TLS, keepalive, errors.

asyncpg has no channel binding (SCRAM-SHA-256-PLUS). Where `channel_binding=require` asks for it, psycopg connects, and
rows come one at a time, which takes more CPU.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg

from ..config.connection import KeepaliveConfig, PgConnectionConfig
from ..errors import ConfigError, SourceConnectionFailed, SourceDataError, SourceError
from ..postgres.connection import COPYING, SESSION_SETTINGS, application_name, session_parameters
from ..postgres.translation import translate
from ..sqlstate import error_for_sqlstate
from .tls import tls_for

__all__ = ["open_session", "translated_asyncpg_errors"]

# What can be honoured here, and what asks for nothing that asyncpg does not do.
_HONOURED = frozenset({"options", "passfile", "sslcert", "sslkey"})
_VOID = {
    "channel_binding": ("disable", "prefer"),
    "gssencmode": ("disable", "prefer"),
    "target_session_attrs": ("any",),
    "sslnegotiation": ("postgres",),
}

_HAS_TRANSACTION_TIMEOUT = 17
_PIECE_BYTES = 256 << 10


async def open_session(config: PgConnectionConfig, *, pipeline: str | int | None = None) -> Any:
    """An asyncpg connection whose text is that of every other session. Raises SourceError, ConfigError."""
    if config.parameters.get("channel_binding") == "require":
        return await _open_bound(config, application_name("copy", pipeline))
    _check_parameters(config)
    password = config.read_password()
    settings = {**SESSION_SETTINGS, **COPYING.settings(), "application_name": application_name("copy", pipeline)}
    del settings["client_encoding"]  # asyncpg sets it to UTF-8 itself
    if "options" in config.parameters:
        # The server takes these first, so that ours win.
        settings["options"] = config.parameters["options"]
    with translated_asyncpg_errors("cannot connect to Postgres"):
        connection = await asyncpg.connect(
            host=config.hostaddr or config.host,
            port=config.port,
            user=config.username,
            password=password.get_secret_value() if password else None,
            passfile=config.parameters.get("passfile"),
            database=config.name,
            ssl=tls_for(config),
            timeout=config.connect_timeout,
            statement_cache_size=0,
            server_settings=settings,
        )
        try:
            _keep_alive(connection, config.keepalive)
            if connection.get_server_version().major >= _HAS_TRANSACTION_TIMEOUT:
                await connection.execute("SET transaction_timeout = 0")
        except BaseException:
            connection.terminate()
            raise
    return connection


async def _open_bound(config: PgConnectionConfig, name: str) -> _BoundSession:
    with translated_asyncpg_errors("cannot connect to Postgres"):
        parameters = session_parameters(config, name, COPYING)
        session = _BoundSession(await psycopg.AsyncConnection.connect(autocommit=True, **parameters))
        try:
            if session.connection.info.server_version >= _HAS_TRANSACTION_TIMEOUT * 10_000:
                await session.execute("SET transaction_timeout = 0")
        except BaseException:
            session.terminate()
            raise
    return session


class _BoundSession:
    """What a copy needs of an asyncpg connection, done by libpq."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection

    async def execute(self, statement: str) -> None:
        await self.connection.execute(statement.encode())

    async def fetchrow(self, query: str) -> Any:
        cursor = await self.connection.execute(query.encode())
        return await cursor.fetchone()

    async def copy_from_query(self, query: str, *, output: Callable[[bytes], Awaitable[None]], format: str) -> str:
        """Copy the query's rows to `output` and return the command's tag, as asyncpg does."""
        cursor, pieces, size = self.connection.cursor(), [], 0
        async with cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT {format})".encode()) as copy:
            async for piece in copy:
                pieces.append(bytes(piece))
                size += len(piece)
                if size >= _PIECE_BYTES:
                    await output(b"".join(pieces))
                    pieces, size = [], 0
        if pieces:
            await output(b"".join(pieces))
        return f"COPY {cursor.rowcount}"

    async def close(self, timeout: float) -> None:
        await asyncio.wait_for(self.connection.close(), timeout)

    def terminate(self) -> None:
        self.connection.pgconn.finish()


def _check_parameters(config: PgConnectionConfig) -> None:
    for name, value in sorted(config.parameters.items()):
        if name not in _HONOURED and value not in _VOID.get(name, ()):
            msg = f"the initial copy cannot honour the connection parameter {name}"
            raise ConfigError(msg, hint=f"leave it out; it can use {', '.join(sorted(_HONOURED))}")


def _keep_alive(connection: Any, keepalive: KeepaliveConfig) -> None:
    raw = connection._transport.get_extra_info("socket")
    if raw is None or raw.family == socket.AF_UNIX:
        return
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, keepalive.idle)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, keepalive.interval)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, keepalive.retries)
    dead_after = keepalive.idle + keepalive.interval * keepalive.retries
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, dead_after * 1000)


@contextmanager
def translated_asyncpg_errors(doing: str) -> Iterator[None]:
    """Within the block, whatever asyncpg or the network raises becomes a headrace error."""
    try:
        yield
    except asyncpg.PostgresError as error:
        translated = _translate(error, doing)
        # A data error's original text holds the row value: it must not travel along in tracebacks.
        raise translated from (None if isinstance(translated, SourceDataError) else error)
    except psycopg.Error as error:
        bound = translate(error, doing)
        raise bound from (None if isinstance(bound, SourceDataError) else error)
    except (TimeoutError, OSError, asyncpg.InterfaceError) as error:
        raise SourceConnectionFailed(doing, detail=" ".join(str(error).split()) or type(error).__name__) from error


def _translate(error: Any, doing: str) -> SourceError:
    kind = error_for_sqlstate(error.sqlstate)
    if issubclass(kind, SourceDataError):
        # The server quotes the offending value in these; where it happened is all that may be told.
        place = [error.schema_name, error.table_name, error.column_name, error.constraint_name]
        detail = ".".join(part for part in place if part) or f"SQLSTATE {error.sqlstate}"
    else:
        detail = f"{error.message or error.sqlstate}" + (f" ({error.hint})" if error.hint else "")
    return kind(doing, sqlstate=error.sqlstate, detail=detail)
