from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from headrace.pgoutput.timestamps import (
    POSTGRES_EPOCH,
    POSTGRES_EPOCH_MICROS,
    datetime_from_postgres,
    postgres_from_datetime,
)


def test_the_epoch_is_the_same_instant_on_both_clocks() -> None:
    assert POSTGRES_EPOCH.timestamp() * 1_000_000 == POSTGRES_EPOCH_MICROS


def test_there_and_back_with_microseconds_and_before_2000() -> None:
    for moment in (
        datetime(2025, 6, 1, 12, 0, 0, 123_456, tzinfo=UTC),
        datetime(1969, 7, 20, 20, 17, 40, 1, tzinfo=UTC),
        datetime(2025, 6, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    ):
        assert datetime_from_postgres(postgres_from_datetime(moment)) == moment
    assert datetime_from_postgres(-1) == datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
