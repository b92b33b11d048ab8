"""Commits that fail while the driver lives on: no file that a table names is removed, and each change is there once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commit_faults import (
    ICEBERG_OPERATIONS,
    MAINTENANCE,
    DeltaFaults,
    Fault,
    IcebergFaults,
    delta_table,
    iceberg_table,
    killed_jvm,
    lost_around,
    rest_table,
)
from headrace.testing.proxy import Loss
from lakehouse import iceberg_settings, lake


# An expiry that is repeated has nothing left to expire.
@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        (operation, fault)
        for fault in (Fault.BEFORE, Fault.LOST, Fault.READING, Fault.REPEATED)
        for operation in ICEBERG_OPERATIONS
        if (operation, fault) != ("expiry", Fault.REPEATED)
    ],
)
def test_iceberg_keeps_files_that_may_be_committed(
    operation: str, fault: Fault, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = IcebergFaults(monkeypatch)
    settings = iceberg_settings(tmp_path, maintenance=MAINTENANCE)
    with iceberg_table(settings, partial(lake, tmp_path), spark) as table:
        table.faulted(operation, partial(faults.inject, fault))


@pytest.mark.parametrize(
    ("operation", "fault"), [("alter", Fault.READING), ("alter", Fault.LOST), ("append", Fault.BEFORE)]
)
def test_delta_keeps_files_that_may_be_committed(
    operation: str, fault: Fault, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = DeltaFaults(monkeypatch)
    with delta_table(tmp_path, spark) as table:
        table.faulted(operation, partial(faults.inject, fault))


@pytest.mark.parametrize("operation", ["append", "copy"])
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_commit_that_is_carried_out_late(
    kind: str, operation: str, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a load balancer that had answered 504, say: after the next attempt was planned, before its commit."""
    if kind == "iceberg":
        settings = iceberg_settings(tmp_path, maintenance=MAINTENANCE)
        faults, opened = IcebergFaults(monkeypatch), iceberg_table(settings, partial(lake, tmp_path), spark)
    else:
        faults, opened = DeltaFaults(monkeypatch), delta_table(tmp_path, spark)
    with opened as table:
        table.faulted(operation, partial(faults.inject, Fault.LATE))


def test_a_rest_catalog_that_is_lost_around_commits(tmp_path: Path, spark: Any) -> None:
    with rest_table(tmp_path / "warehouse", spark) as (table, proxy):
        for loss in (Loss.ANSWER, Loss.NEXT):
            table.faulted("append", partial(lost_around, proxy, loss))


def test_a_jvm_that_is_killed_after_a_commit(tmp_path: Path, spark: Any) -> None:
    """The driver lives on without its JVM, and must leave the files of the commit alone."""
    with killed_jvm(tmp_path, "reading", "append", spark) as table:
        table.do_append()
        table.check()
