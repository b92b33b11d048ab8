"""`make bench-source`: everything between Postgres and Arrow, side by side in one run.

Writes benchmarks/results/source.json. Ratios matter; absolutes are this machine's. Bars are what the project holds
itself to; a missed one is reported and ends the run with an error.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

import decoder
import receiver

RESULTS = Path(__file__).with_name("results") / "source.json"
RECEIVER_BAR = 0.9


def main() -> int:
    print("decoder (rows per CPU-second) …")
    decoded = decoder.measure()
    print("receiver against pg_recvlogical …")
    received = receiver.run()
    result = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "receiver_vs_pg_recvlogical": round(received["receiver_vs_pg_recvlogical"], 3),
        "receiver_cpu_s_per_million": round(received["receiver_cpu_s_per_million"], 2),
        "receiver_messages_per_s": round(received["receiver_messages_per_s"]),
        "pg_recvlogical_messages_per_s": round(received["pg_recvlogical_messages_per_s"]),
        "decoder_rows_per_cpu_s": {name: round(value) for name, value in decoded["rows_per_cpu_s"].items()},
        "decoder_us_per_row_by_rows": {name: round(value, 3) for name, value in decoded["us_per_row"].items()},
        "decoder_growth": round(decoded["growth"], 2),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return report_missed(result)


def report_missed(result: dict) -> int:
    bars = {name: (result["decoder_rows_per_cpu_s"][name], bar) for name, bar in decoder.BARS.items()}
    bars["receiver_vs_pg_recvlogical"] = (result["receiver_vs_pg_recvlogical"], RECEIVER_BAR)
    missed = {name: pair for name, pair in bars.items() if pair[0] < pair[1]}
    for name, (value, bar) in missed.items():
        print(f"below the bar: {name} is {value:,}, the bar is {bar:,}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
