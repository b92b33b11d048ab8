"""Runs checks one by one. A check that fails to run is itself a finding, and stops no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from ...errors import HeadraceError, PublicationNotFound
from ..translation import translate
from .access import encryption, pooler, replication_privilege, row_security, select_privilege
from .contract import Check, Finding, Severity, Target
from .publication import publication_exists, publication_tables, unpublishable_tables
from .schema_changes import schema_changes
from .server import (
    encoding,
    free_slots,
    free_walsenders,
    idle_slot_timeout,
    server_version,
    slot_wal_limit,
    synchronized_standby_slots,
    wal_level,
)
from .tables import generated_columns, keyless_tables, omitted_key_columns, replica_identity

__all__ = ["ALL_CHECKS", "run_checks"]

ALL_CHECKS: tuple[Check, ...] = (
    server_version,
    wal_level,
    encoding,
    pooler,
    encryption,
    replication_privilege,
    free_slots,
    free_walsenders,
    slot_wal_limit,
    idle_slot_timeout,
    synchronized_standby_slots,
    publication_exists,
    publication_tables,
    unpublishable_tables,
    select_privilege,
    row_security,
    replica_identity,
    keyless_tables,
    omitted_key_columns,
    generated_columns,
    schema_changes,
)


def run_checks(
    connection: psycopg.Connection[Any], target: Target, checks: Sequence[Check] = ALL_CHECKS
) -> list[Finding]:
    """Every finding of every check, in the order of the checks."""
    return [finding for check in checks for finding in _run(check, connection, target)]


def _run(check: Check, connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    try:
        return check.run(connection, target)
    except PublicationNotFound:
        return []  # publication_exists reports it once; checks of its tables have nothing to look at
    except psycopg.Error as error:
        return [_could_not_run(check, translate(error))]
    except Exception as error:  # noqa: BLE001 - one broken check must not hide what the others see
        return [_could_not_run(check, error)]


def _could_not_run(check: Check, error: Exception) -> Finding:
    # Only our own errors are known to hold no secret and no row value.
    if isinstance(error, HeadraceError):
        return Finding(check.name, Severity.ERROR, f"could not run: {error}", error.hint)
    return Finding(check.name, Severity.ERROR, f"could not run: {type(error).__name__}")
