"""Opens connections to the source. Every session has the same settings, so that a value has one text form everywhere.

Two kinds: SQL connections, whose statements are bounded in time, and replication connections, which speak the walsender
protocol for as long as the pipeline lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import TupleRow, tuple_row

from ..config.connection import PgConnectionConfig
from .conninfo import libpq_parameters, parse_conninfo
from .translation import translated_errors

__all__ = [
    "BOUNDED",
    "COPYING",
    "SESSION_SETTINGS",
    "UNBOUNDED",
    "SessionTimeouts",
    "application_name",
    "connect",
    "connect_replication",
    "parse_conninfo",
    "session_parameters",
]

# The decoder relies on these: they fix the text of dates, intervals, floats, bytea, time zones and names (regclass).
# The search_path also keeps functions and operators that other roles made out of name resolution. Without a space: it
# is passed as a command-line option.
SESSION_SETTINGS = {
    "search_path": "pg_catalog,pg_temp",
    # Policies hide rows from a copy, but not from the stream: better an error than fewer rows.
    "row_security": "off",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "client_encoding": "UTF8",
    "timezone": "UTC",
    "bytea_output": "hex",
}

_NAME_BYTES = 63  # NAMEDATALEN - 1: Postgres cuts longer ones, in the middle of a character if need be.


@dataclass(frozen=True, slots=True)
class SessionTimeouts:
    """Server-side limits in milliseconds; 0 is no limit."""

    statement_ms: int
    lock_ms: int
    idle_in_transaction_ms: int

    def settings(self) -> dict[str, str]:
        return {
            "statement_timeout": str(self.statement_ms),
            "lock_timeout": str(self.lock_ms),
            "idle_in_transaction_session_timeout": str(self.idle_in_transaction_ms),
        }


# A catalog query takes milliseconds: one that runs longer waits for something, and must not hold locks while it does.
BOUNDED = SessionTimeouts(statement_ms=30_000, lock_ms=10_000, idle_in_transaction_ms=60_000)
# For COPY, held snapshots and replication, which are long by nature. Overrides what the role or database sets.
UNBOUNDED = SessionTimeouts(statement_ms=0, lock_ms=0, idle_in_transaction_ms=0)

# A copy takes hours, but waits for no lock: who waits for one behind an ALTER TABLE, which itself waits for the
# connection that holds the copy's snapshot, waits for itself, and the server cannot see that.
COPYING = SessionTimeouts(statement_ms=0, lock_ms=10_000, idle_in_transaction_ms=0)


def application_name(role: str, pipeline: str | int | None = None) -> str:
    """`headrace_<role>_<pipeline>`, within Postgres's 63 bytes: what pg_stat_activity shows an operator."""
    name = f"headrace_{role}" if pipeline is None else f"headrace_{role}_{pipeline}"
    return name.encode()[:_NAME_BYTES].decode(errors="ignore")


def connect(
    config: PgConnectionConfig, role: str, *, pipeline: str | int | None = None, timeouts: SessionTimeouts = BOUNDED
) -> psycopg.Connection[TupleRow]:
    """Open an autocommit SQL connection. Raises SourceError."""
    return _open(config, application_name(role, pipeline), timeouts)


def connect_replication(
    config: PgConnectionConfig, role: str, *, pipeline: str | int | None = None
) -> psycopg.Connection[TupleRow]:
    """Open a walsender connection to the database; its `pgconn` speaks START_REPLICATION. Raises SourceError."""
    return _open(config, application_name(role, pipeline), UNBOUNDED, replication="database")


def session_parameters(config: PgConnectionConfig, name: str, timeouts: SessionTimeouts) -> dict[str, Any]:
    """Return libpq's parameters of a session with our settings, the password among them: show them to nobody."""
    parameters: dict[str, Any] = {**libpq_parameters(config), "application_name": name}
    parameters["client_encoding"] = SESSION_SETTINGS["client_encoding"]
    settings = {**SESSION_SETTINGS, **timeouts.settings()}
    ours = " ".join(f"-c {key}={value}" for key, value in settings.items() if key != "client_encoding")
    # The server takes the last value of a setting: ours win over the user's own `options`.
    parameters["options"] = f"{parameters.get('options', '')} {ours}".strip()
    return parameters


def _open(
    config: PgConnectionConfig, name: str, timeouts: SessionTimeouts, **more: str
) -> psycopg.Connection[TupleRow]:
    parameters = {**session_parameters(config, name, timeouts), **more}
    where = f"{config.host}:{config.port}, database {config.name}, as {config.username}"
    with translated_errors(f"cannot connect to Postgres at {where}"):
        return psycopg.Connection.connect(autocommit=True, row_factory=tuple_row, **parameters)
