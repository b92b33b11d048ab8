"""A connection to the source for a command, or the command's end: whatever keeps it out has one exit code."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from ..config.connection import PgConnectionConfig
from ..errors import SourceError
from ..postgres.connection import connect
from .exit_code import ExitCode
from .failing import fail

__all__ = ["connected"]


def connected(config: PgConnectionConfig, role: str, *, pipeline: int | None = None) -> psycopg.Connection[TupleRow]:
    """An autocommit connection. Ends the command with the error and its remedy if there is none to be had."""
    try:
        return connect(config, role, pipeline=pipeline)
    except SourceError as error:
        fail(error, ExitCode.CANNOT_CONNECT)
