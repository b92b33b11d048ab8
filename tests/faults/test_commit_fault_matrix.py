"""Every kind of commit meets every fault around it, with the driver alive: REST catalog lost, JVM killed, Delta's log
lost. No file that a table names is removed, all rows are there, each change once.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commit_faults import OPERATIONS, DeltaFaults, Fault, delta_table, killed_jvm, lost_around, rest_table
from headrace.testing.proxy import Loss

pytestmark = pytest.mark.long


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("loss", Loss)
def test_a_rest_catalog_is_lost(operation: str, loss: Loss, tmp_path: Path, spark: Any) -> None:
    with rest_table(tmp_path / "warehouse", spark) as (table, proxy):
        table.faulted(operation, partial(lost_around, proxy, loss))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("moment", ["lost", "reading"])
def test_the_jvm_is_killed(operation: str, moment: str, tmp_path: Path, spark: Any) -> None:
    with killed_jvm(tmp_path, moment, operation, spark) as table:
        getattr(table, f"do_{operation}")()
        table.check()


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fault", list(Fault))
def test_the_log_of_a_delta_table_is_lost(
    operation: str, fault: Fault, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = DeltaFaults(monkeypatch)
    with delta_table(tmp_path, spark) as table:
        table.faulted(operation, partial(faults.inject, fault))
