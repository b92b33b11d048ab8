"""`make bench`: the whole way from Postgres into Iceberg, side by side with the field in one run, on a warm session.

Writes benchmarks/results/pipeline.json. Ratios matter; absolutes are this machine's. Bars are what the project holds
itself to on two cores; a missed one is reported and ends the run with an error.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

import pipeline_copy
import pipeline_destinations
import pipeline_freshness
import pipeline_growth
import pipeline_merge
import pipeline_stream
from pipeline_lakehouse import Lakehouse, open_lakehouse
from pipeline_report import judged, show
from pipeline_sizes import FULL, QUICK, Sizes

RESULTS = Path(__file__).with_name("results") / "pipeline.json"

PARTS: dict[str, Callable[[Lakehouse, Sizes], dict[str, Any]]] = {
    "copy": pipeline_copy.run,
    "stream": pipeline_stream.run,
    "merge": pipeline_merge.run,
    "freshness": pipeline_freshness.run,
    "growth": pipeline_growth.run,
    "destinations": pipeline_destinations.run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Headrace into Iceberg, beside the field.")
    parser.add_argument("--quick", action="store_true", help="small data, no bars")
    parser.add_argument("--only", default=",".join(PARTS), help="some parts of: %(default)s")
    parser.add_argument("--output", type=Path, help="where to write the figures; a whole run in full writes its own")
    given = parser.parse_args(arguments)
    parts = given.only.split(",")
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"--only knows {', '.join(PARTS)}, not {', '.join(unknown)}")
    # A table that failed and was tried again is in the figures, and must be seen beside them.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    result = run(parts, QUICK if given.quick else FULL, short_lived=given.quick)
    if not given.quick:
        result["bars"] = judged(result)
    show(result)
    whole = not given.quick and set(parts) == set(PARTS)
    output = given.output or (RESULTS if whole else None)
    if output is not None:
        output.parent.mkdir(exist_ok=True)
        output.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if given.quick else report_missed(result)


def run(parts: Sequence[str], sizes: Sizes, *, short_lived: bool = False) -> dict[str, Any]:
    result: dict[str, Any] = {"machine": {"cpus": os.cpu_count(), "python": platform.python_version()}}
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as root,
        open_lakehouse(Path(root), short_lived=short_lived) as lakehouse,
    ):
        for part in parts:
            print(f"{part} …", flush=True)
            result |= PARTS[part](lakehouse, sizes)
    result["peak_memory_mb"] = peak_memory(result)
    return result


def peak_memory(found: dict[str, Any]) -> dict[str, int]:
    """By role of a process, the largest of all parts."""
    peaks: dict[str, int] = {}
    for value in found.values():
        if not isinstance(value, dict):
            continue
        for role, size in (value.get("peak_memory_mb") or peak_memory(value)).items():
            peaks[role] = max(peaks.get(role, 0), size)
    return peaks


def report_missed(result: dict[str, Any]) -> int:
    missed = {name: verdict for name, verdict in result["bars"].items() if not verdict["holds"]}
    for name, verdict in missed.items():
        print(f"missed: {name} is {result[name]}, the bar is {verdict['bar']}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
