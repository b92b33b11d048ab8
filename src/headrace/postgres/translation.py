"""psycopg's exceptions as ours: by SQLSTATE, without row values, without secrets.

A refused login reaches the client without its SQLSTATE (libpq keeps it to itself), so there the server's words decide;
what they do not tell counts as a failed connection, which is tried again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from ..errors import (
    SourceAuthenticationFailed,
    SourceConnectionFailed,
    SourceDataError,
    SourceError,
    SourceInRecovery,
    SourcePermissionDenied,
    SourceSchemaError,
    SourceShutdown,
    SourceUnsupported,
)
from ..sqlstate import error_for_sqlstate

__all__ = ["translate", "translated_errors"]

_REFUSALS: tuple[tuple[str, type[SourceError]], ...] = (
    (r"authentication failed|no password supplied|pg_hba\.conf", SourceAuthenticationFailed),
    (r"role .* does not exist|not permitted to log in", SourceAuthenticationFailed),
    (r"unsupported startup parameter", SourceUnsupported),  # PgBouncer's answer to our session settings
    (r"permission denied|to start walsender", SourcePermissionDenied),
    (r"database .* does not exist", SourceSchemaError),
    (r"starting up|not yet accepting connections|recovery mode", SourceInRecovery),
    (r"shutting down", SourceShutdown),
)
_POOLER = "a connection pooler answered: connect to the server's own host and port"
# psycopg resolves by itself; libpq does for what psycopg leaves to it.
_UNRESOLVED = r"failed to resolve host|could not translate host name"
_DATABASE = "check the name of the database, or create it"
_SPELLING = "check how the host is spelled, and that this machine can resolve its name"


def translate(error: psycopg.Error, doing: str | None = None) -> SourceError:
    """The headrace error that `error` means; `doing` names what was tried ("cannot …")."""
    kind = error_for_sqlstate(error.sqlstate) if error.sqlstate else _kind_without_sqlstate(error)
    hint = _hint_without_sqlstate(kind, str(error)) if error.sqlstate is None else None
    return kind(doing or _message(kind), sqlstate=error.sqlstate, detail=_detail(error, kind), hint=hint)


def _hint_without_sqlstate(kind: type[SourceError], text: str) -> str | None:
    """More than the kind of error knows, for a connection that did not come about."""
    if kind is SourceConnectionFailed and re.search(_UNRESOLVED, text):
        return _SPELLING
    return {SourceUnsupported: _POOLER, SourceSchemaError: _DATABASE}.get(kind)


def _message(kind: type[SourceError]) -> str:
    return "cannot connect to Postgres" if kind is SourceConnectionFailed else "Postgres refused"


def _kind_without_sqlstate(error: psycopg.Error) -> type[SourceError]:
    if not isinstance(error, psycopg.OperationalError):
        return SourceError
    text = str(error)
    for pattern, kind in _REFUSALS:
        if re.search(pattern, text):
            return kind
    # libpq's own word, in any language: the server asked for a password and there was none.
    needs_password = error.pgconn is not None and error.pgconn.needs_password
    return SourceAuthenticationFailed if needs_password else SourceConnectionFailed


def _detail(error: psycopg.Error, kind: type[SourceError]) -> str | None:
    if error.sqlstate is None:
        return " ".join(str(error).split()) or None
    diag = error.diag
    if issubclass(kind, SourceDataError):
        # The server quotes the offending value in these; where it happened is all that may be told.
        place = [diag.schema_name, diag.table_name, diag.column_name, diag.constraint_name]
        return ".".join(part for part in place if part) or f"SQLSTATE {error.sqlstate}"
    hint = f" ({diag.message_hint})" if diag.message_hint else ""
    return f"{diag.message_primary or error.sqlstate}{hint}"


@contextmanager
def translated_errors(doing: str | None = None) -> Iterator[None]:
    """Within the block, whatever psycopg raises becomes a headrace error."""
    try:
        yield
    except psycopg.Error as error:
        translated = translate(error, doing)
        # A data error's original text holds the row value: it must not travel along in tracebacks.
        raise translated from (None if isinstance(translated, SourceDataError) else error)
