"""Every kind of commit meets every fault around it, with the driver alive: REST catalog lost, JVM killed, Delta's log
lost. No file that a table names is removed, all rows are there, each change once.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commit_faults import (
    ICEBERG_OPERATIONS,
    OPERATIONS,
    DeltaFaults,
    Fault,
    answered_around,
    delta_table,
    http_table,
    killed_jvm,
    lost_around,
    rest_table,
)
from headrace.testing.http_proxy import Fault as HttpFault
from headrace.testing.http_proxy import answered
from headrace.testing.proxy import Loss

pytestmark = [pytest.mark.long, pytest.mark.faults]


@pytest.mark.parametrize("operation", ICEBERG_OPERATIONS)
@pytest.mark.parametrize("loss", Loss)
def test_a_rest_catalog_is_lost(operation: str, loss: Loss, tmp_path: Path, spark: Any) -> None:
    with rest_table(tmp_path / "warehouse", spark) as (table, proxy):
        table.faulted(operation, partial(lost_around, proxy, loss))


# How often, because Iceberg's client repeats some requests by itself.
ANSWERS: dict[str, tuple[HttpFault, int]] = {
    "503": (answered(503), 100),
    "503 once": (answered(503), 1),
    "504": (answered(504), 100),
    "503 although committed": (answered(503, carried_out=True), 1),
    "503 always although committed": (answered(503, carried_out=True), 100),
    "504 although committed": (answered(504, carried_out=True), 1),
    "500": (answered(500), 100),
    "500 although committed": (answered(500, carried_out=True), 1),
    "502": (answered(502), 100),
    "502 although committed": (answered(502, carried_out=True), 1),
    "401": (answered(401), 100),
    "403": (answered(403), 100),
    "409": (answered(409), 6),
    "409 once": (answered(409), 1),
    # A gateway that repeats a request by itself passes on the second answer only.
    "401 although committed": (answered(401, carried_out=True), 1),
    "403 although committed": (answered(403, carried_out=True), 1),
    "409 although committed": (answered(409, carried_out=True), 1),
    "409 always although committed": (answered(409, carried_out=True), 6),
}
# One after the other on one table.
IN_ORDER = ("append", "merge", "copy", "quarantine", "compaction", "truncate", "alter", "expiry")


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_rest_catalog_answers_an_error(answer: str, tmp_path: Path, spark: Any) -> None:
    fault, times = ANSWERS[answer]
    with http_table(tmp_path / "warehouse", spark) as (table, proxy):
        for operation in IN_ORDER:
            table.faulted(operation, partial(answered_around, proxy, fault, times))


@pytest.mark.parametrize("operation", ICEBERG_OPERATIONS)
@pytest.mark.parametrize("moment", ["before", "lost", "reading"])
def test_the_jvm_is_killed(operation: str, moment: str, tmp_path: Path, spark: Any) -> None:
    with killed_jvm(tmp_path, moment, operation, spark) as table:
        getattr(table, f"do_{operation}")()
        table.check()
        if operation == "expiry":
            table.check_expired_files()


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.REPEATED])
def test_the_log_of_a_delta_table_is_lost(
    operation: str, fault: Fault, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = DeltaFaults(monkeypatch)
    with delta_table(tmp_path, spark) as table:
        table.faulted(operation, partial(faults.inject, fault))
