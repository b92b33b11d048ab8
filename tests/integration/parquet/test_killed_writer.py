"""kill -9 at any moment: what was acknowledged is in the log, every change once, and nothing else."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.config.parquet import ParquetConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.parquet import ParquetDestination, open_log
from headrace.pipeline.replaying import Replay
from headrace.stores import MemoryStore

WRITER = Path(__file__).with_name("log_writer.py")


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_what_was_acknowledged_is_there_once(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    location = tmp_path / "log"
    acknowledged = 0
    for _ in range(4 if seed == 1 else 30):
        wanted = acknowledged + chance.randint(1, 12)
        acknowledged = max(acknowledged, _killed(location, wanted, chance.uniform(0, 0.02)))
    rows = MemoryDestination()
    store = MemoryStore()
    context = DestinationContext(1, store, None)
    Replay(open_log(str(location)), rows, context, store).run()
    found = sorted(rows.rows("public.orders")["id"].to_pylist())
    # The first batch brings the row before it too.
    assert found == list(range(found[-1] + 1))
    assert found[-1] in (acknowledged, acknowledged + 1)
    # The next start leaves only files that count.
    again = ParquetDestination(ParquetConfig(location=str(location)))
    again.startup(context)
    again.claim()
    named = open_log(str(location)).table("public.orders").files()
    assert sorted(named) == sorted(str(path) for path in location.rglob("*.parquet"))


def _killed(location: Path, wanted: int, later_s: float) -> int:
    """Run the writer until it has written so much, and a moment longer; return what it said last."""
    with subprocess.Popen(
        [sys.executable, str(WRITER), str(location)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        last = 0
        for line in process.stdout:
            word, number = line.split()
            last = int(number) if word == "written" else last
            if last >= wanted:
                break
        # Not for a condition: the point is to meet it anywhere.
        threading.Event().wait(later_s)
        process.kill()
        for line in process.stdout:
            last = int(line.split()[1]) if line.endswith("\n") else last
    return last
