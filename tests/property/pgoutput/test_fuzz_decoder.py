"""A short run of the fuzzer, on inputs that are the same every time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FUZZER = Path(__file__).parents[3] / "fuzz" / "fuzz_decoder.py"


def test_the_fuzzer_finds_nothing() -> None:
    run = subprocess.run(
        [sys.executable, str(FUZZER), "--seconds", "4", "--seed", "1"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    found = re.match(r"(\d+) inputs, no surprise", run.stdout)
    assert found is not None
    assert int(found[1]) >= 100
