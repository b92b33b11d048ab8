"""Files of the spool that are damaged: the server sends again what it still has, and the rest is an error."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from awaiting import until
from headrace.replication import assembler
from receiving import Source


def damage(path: Path) -> None:
    """Flip a bit of a row."""
    content = path.read_bytes()
    path.write_bytes(content.replace(b"vvvv", b"vvwv", 1))
    assert path.read_bytes() != content


@pytest.mark.parametrize("gone", [False, True])
def test_a_running_transaction_whose_file_is_damaged_is_read_again(
    source: Source, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    monkeypatch.setattr(assembler, "STREAMED_BUFFER_BYTES", 64 * 1024)
    source.connection.execute(f"ALTER DATABASE {source.connection.info.dbname} SET logical_decoding_work_mem = '64kB'")
    staging = source.root / "spool" / "staging"
    with psycopg.connect(source.conninfo) as writer, source.receiving() as running:
        end = source.insert(1, 10)
        running.wait(lambda status: status.spooled >= end)
        writer.execute("INSERT INTO t SELECT n, repeat('v', 100) FROM generate_series(11, 8000) n")
        until(lambda: len(list(staging.iterdir())) > 1)
        spilled = min(staging.iterdir(), key=lambda path: path.stat().st_mtime)
        spilled.unlink() if gone else damage(spilled)
        writer.commit()
        later = source.insert(8001, 8010)
        status = running.wait(lambda status: status.spooled >= later)
        told = [str(status.problem) for status in running.statuses if status.problem is not None]
    assert any(str(spilled) in problem and "damaged" in problem for problem in told), told
    assert status.reconnects == 1
    assert source.inserted() == list(range(1, 8011))
    values = source.connection.execute("SELECT count(*) FROM t WHERE v ~ 'w'").fetchone()
    assert values == (0,)
