"""Postgres's clock: microseconds since 2000-01-01 00:00 UTC, and the ways in and out of it.

Messages carry these numbers as they came. They are converted here and nowhere else.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = [
    "POSTGRES_EPOCH",
    "POSTGRES_EPOCH_MICROS",
    "datetime_from_postgres",
    "datetime_from_unix",
    "postgres_from_datetime",
]

POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

POSTGRES_EPOCH_MICROS = 946_684_800_000_000
"""POSTGRES_EPOCH as microseconds since the Unix epoch: add it to go from Postgres's clock to Unix's."""

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def datetime_from_postgres(micros: int) -> datetime:
    """Raises OverflowError outside the years 1 to 9999, which no commit time of a real server is."""
    return POSTGRES_EPOCH + timedelta(microseconds=micros)


def datetime_from_unix(micros: int) -> datetime:
    """For what was converted in columns: Arrow's timestamps count from the Unix epoch."""
    return _UNIX_EPOCH + timedelta(microseconds=micros)


def postgres_from_datetime(moment: datetime) -> int:
    return (moment - POSTGRES_EPOCH) // _MICROSECOND
