"""The promise of a check: look at one thing, change nothing, say what is wrong and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import psycopg

from ...config.connection import PgConnectionConfig
from ...config.source import SourceInstall

__all__ = ["Check", "Finding", "Severity", "SourceCheck", "Target", "named"]


class Severity(StrEnum):
    """error: replication cannot work. warning: it works, with a risk. info: good to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a check saw. `remedy` is what to do, as SQL wherever SQL does it."""

    check: str
    severity: Severity
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be replicated, and from where."""

    config: PgConnectionConfig
    publication: str
    install: SourceInstall = SourceInstall.AUTO
    """Whether a start puts into the source what tells of DDL."""
    failover_slot: bool = True
    """Whether the slot is one that standbys keep a copy of, where the server can."""


class Check(Protocol):
    """Independent of all other checks: no order, no shared state, read-only.

    An empty list means all is well. A check may raise; the run goes on and reports that it could not be made.
    """

    @property
    def name(self) -> str: ...

    def run(self, connection: psycopg.Connection[Any], target: Target, /) -> list[Finding]:
        """Look, and report. `connection` is in autocommit and bounded in time; open others from `target.config`."""


_Run = Callable[[psycopg.Connection[Any], Target], list[Finding]]


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """A check made of a function."""

    name: str
    run: _Run


def named(name: str) -> Callable[[_Run], SourceCheck]:
    """Make the decorated function a check of this name."""
    return lambda run: SourceCheck(name, run)
