"""The receiver's memory does not grow with the size of a transaction, whether the server streams it or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.replication import ReceiverProcess
from receiving import Source

LIMIT_MB = 300


def peak_rss_mb(pid: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "at commit"])
@pytest.mark.parametrize("rows", [300_000, pytest.param(5_000_000, marks=pytest.mark.long)])
def test_one_large_transaction(
    conninfo: str,
    connection: psycopg.Connection[Any],
    tmp_path: Path,
    rows: int,
    streaming: bool,
) -> None:
    source = Source(conninfo, connection, tmp_path)
    config = source.config().model_copy(update={"streaming": streaming})
    with ReceiverProcess(config) as receiver:
        receiver.wait(lambda status: status.state == "streaming", 60)
        end = source.insert(1, rows, size=100)
        receiver.wait(lambda status: status.spooled >= end, 1200)
        peak = peak_rss_mb(receiver.pid)
    spool = source.spool()
    indexes = [spool.index(name) for segment in spool.segments() for name in segment.names]
    assert sum(table.rows for index in indexes for table in index.tables.values()) == rows
    print(f"{rows:,} rows, {'streamed' if streaming else 'at commit'}: peak RSS {peak:.0f} MB")
    assert peak < LIMIT_MB
