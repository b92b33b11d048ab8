"""What a SQLSTATE means: which error of the tree a code of the server becomes."""

from __future__ import annotations

from .errors import (
    SourceAuthenticationFailed,
    SourceCanceled,
    SourceConflict,
    SourceConnectionFailed,
    SourceDataError,
    SourceError,
    SourceInRecovery,
    SourceIoError,
    SourceLimitExceeded,
    SourceLockTimeout,
    SourcePermissionDenied,
    SourceQueryFailed,
    SourceSchemaError,
    SourceShutdown,
    SourceSnapshotTooOld,
)

__all__ = ["SQLSTATES", "error_for_sqlstate"]

# Longest match first: a full code, then its class (the first two characters).
SQLSTATES: dict[str, type[SourceError]] = {
    "08": SourceConnectionFailed,
    "22": SourceDataError,
    "23": SourceDataError,
    "28": SourceAuthenticationFailed,
    "40": SourceConflict,
    "42": SourceQueryFailed,
    "42501": SourcePermissionDenied,
    "42703": SourceSchemaError,
    "42883": SourceSchemaError,
    "42P01": SourceSchemaError,
    "3D000": SourceSchemaError,
    "3F000": SourceSchemaError,
    "53": SourceConnectionFailed,
    "53100": SourceIoError,
    "53400": SourceLimitExceeded,
    "54": SourceQueryFailed,
    "55000": SourceConflict,
    "55006": SourceConflict,
    "55P03": SourceLockTimeout,
    "57000": SourceCanceled,
    "57014": SourceCanceled,
    "57P01": SourceShutdown,
    "57P02": SourceShutdown,
    "57P03": SourceInRecovery,
    "57P04": SourceSchemaError,
    "57P05": SourceConnectionFailed,
    "58": SourceQueryFailed,
    "58030": SourceIoError,
    "72000": SourceSnapshotTooOld,
    "XX": SourceQueryFailed,
}


def error_for_sqlstate(sqlstate: str | None) -> type[SourceError]:
    """Which error a SQLSTATE means; a connection that died without one counts as failed."""
    if sqlstate is None:
        return SourceConnectionFailed
    return SQLSTATES.get(sqlstate) or SQLSTATES.get(sqlstate[:2]) or SourceError
