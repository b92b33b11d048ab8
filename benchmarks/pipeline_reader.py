"""Another reader of the catalog: notes when each table's new metadata can be seen, and up to which LSN it goes.

A process of its own: `python pipeline_reader.py catalog.db namespace`, until its standard input ends; then it prints,
as JSON, what it saw: for each table pairs of seconds since 1970 and LSN.
"""

from __future__ import annotations

import json
import select
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from headrace.lsn import Lsn

__all__ = ["lsn_of", "watch"]

POLL_S = 0.02
LSN = "headrace.lsn"
QUERY = "SELECT table_name, metadata_location FROM iceberg_tables WHERE table_namespace = ?"


def watch(catalog: Path, namespace: str) -> dict[str, list[tuple[float, int]]]:
    seen: dict[str, list[tuple[float, int]]] = {}
    locations: dict[str, str] = {}
    connection = sqlite3.connect(catalog, timeout=30)
    more = True
    while more:
        # What is there when the input ends is still noted.
        more = not select.select([sys.stdin], [], [], POLL_S)[0]
        rows = connection.execute(QUERY, (namespace,)).fetchall()
        now = time.time()
        for table, location in rows:
            if locations.get(table) != location:
                locations[table] = location
                lsn = lsn_of(json.loads(Path(urlparse(location).path).read_bytes()))
                if lsn is not None:
                    seen.setdefault(table, []).append((now, lsn))
    return seen


def lsn_of(metadata: dict[str, Any]) -> int | None:
    """Up to where the table's changes are in it. Snapshots of maintenance may not say."""
    summaries = [snapshot.get("summary", {}) for snapshot in metadata.get("snapshots", ())]
    found = [summary[LSN] for summary in summaries if LSN in summary]
    return max((int(Lsn.parse(text)) if "/" in text else int(text) for text in found), default=None)


if __name__ == "__main__":
    json.dump(watch(Path(sys.argv[1]), sys.argv[2]), sys.stdout)
