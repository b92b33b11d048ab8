"""destinations.duckdb.failures: whose fault it is, what is told of it, and what is not."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from headrace.destinations.duckdb.failures import blamed, failure, is_broken, is_locked
from headrace.errors import (
    DestinationConflict,
    DestinationConnectionFailed,
    DestinationError,
    DestinationRejected,
    HeadraceError,
    ProtocolError,
    RetryPolicy,
    SparkError,
)
from headrace.testing.example_tables import ORDERS

VALUE, SECRET = "a row's own value", "a-secret"


@pytest.mark.parametrize(
    ("error", "kind", "shown"),
    [
        (duckdb.IOException(f"Could not set lock on file {VALUE}"), DestinationConflict, True),
        (duckdb.IOException(f"No space left on {VALUE}"), DestinationError, True),
        (duckdb.TransactionException(f"Conflict {VALUE}"), DestinationConflict, True),
        (duckdb.CatalogException(f"Table {VALUE} does not exist"), DestinationRejected, True),
        (duckdb.OutOfMemoryException(f"out of {VALUE}"), DestinationError, True),
        (duckdb.FatalException(f"invalidated {VALUE}"), DestinationConnectionFailed, True),
        (duckdb.ConversionException(f"Could not convert {VALUE}"), DestinationError, False),
        (duckdb.ConstraintException(f"Duplicate {VALUE}"), DestinationError, False),
    ],
)
def test_an_error_of_duckdb(error: duckdb.Error, kind: type[DestinationError], shown: bool) -> None:
    found = failure(error, "write a batch", [])
    assert type(found) is kind
    assert (VALUE in str(found)) is shown
    assert found.hint
    assert SECRET not in str(failure(type(error)(f"{error} {SECRET}"), "write a batch", [SECRET]))


def test_what_the_connection_survives() -> None:
    assert is_broken(duckdb.FatalException("x"))
    assert not is_broken(duckdb.BinderException("x"))
    assert is_locked(duckdb.IOException("Could not set lock on file"))
    assert not is_locked(duckdb.IOException("No space left"))


@pytest.mark.parametrize(
    "error",
    [
        duckdb.BinderException("no column x"),
        duckdb.ConversionException("x"),
        ProtocolError("x"),
        DestinationRejected("x"),
        ValueError(VALUE),
    ],
)
def test_a_table_is_blamed_for_its_own(error: Exception) -> None:
    with pytest.raises(HeadraceError) as raised, blamed(ORDERS):
        raise error
    assert raised.value.table_id == ORDERS.table.id  # type: ignore[attr-defined]
    assert VALUE not in str(raised.value)


@pytest.mark.parametrize("error", [duckdb.IOException("disk"), duckdb.OutOfMemoryException("x"), SparkError("gone")])
def test_a_table_is_not_blamed_for_what_all_would_meet(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, blamed(ORDERS):
        raise error
    assert getattr(raised.value, "table_id", None) is None


def test_a_dropped_column_asks_for_a_new_copy() -> None:
    with pytest.raises(DestinationRejected) as raised, blamed(ORDERS):
        raise duckdb.BinderException("no column x")
    assert "headrace resync PIPELINE.YAML TABLE" in raised.value.hint
    assert raised.value.retry is RetryPolicy.MANUAL


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    file = tmp_path / "lake.duckdb"
    error = duckdb.IOException(f'IO Error: Could not write file "{file}": No space left on device')
    assert failure(error, "write a batch").hint.startswith(f"free space on the disk of {file}, or enlarge it (/")
