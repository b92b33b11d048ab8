"""The receiver against `pg_recvlogical` to /dev/null, on the same backlog in the same run.

Both ask for the same protocol options. `pg_recvlogical` throws the messages away; the receiver has them in a durable
spool.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import tempfile
import time

import psutil

from backlog import backlog
from headrace.config.receiver import ReceiverConfig
from headrace.config.spool import SpoolConfig
from headrace.lsn import Lsn
from headrace.postgres.conninfo import parse_conninfo
from headrace.replication import ReceiverProcess
from headrace.spool import Spool
from headrace.testing import PostgresServer

TIMEOUT_S = 600


def drain_with_pg_recvlogical(server: PostgresServer, conninfo: str, slot: str, end: Lsn) -> tuple[float, float]:
    """Wall and CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    subprocess.run(
        [
            *(str(server.bin / "pg_recvlogical"), "--start", f"--slot={slot}", f"--dbname={conninfo}"),
            *(f"--endpos={end}", "--file=/dev/null", "--fsync-interval=0", "--option=proto_version=4"),
            *("--option=publication_names=bench", "--option=messages=true", "--option=streaming=parallel"),
        ],
        check=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "LC_ALL": "C"},
    )
    wall = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def drain_with_receiver(conninfo: str, slot: str, end: Lsn) -> tuple[float, float, int]:
    """Wall and CPU seconds from the first message until all is durable in the spool, and how many messages it holds."""
    with tempfile.TemporaryDirectory() as directory:
        spool = SpoolConfig(uri=directory)
        config = ReceiverConfig(
            pg_connection=parse_conninfo(conninfo), publication_name="bench", slot_name=slot, spool=spool
        )
        with ReceiverProcess(config) as receiver:
            process = psutil.Process(receiver.pid)
            receiver.wait(lambda status: status.state == "streaming", TIMEOUT_S)
            started, before = time.monotonic(), process.cpu_times()
            receiver.wait(lambda status: status.covered >= end, TIMEOUT_S)
            wall, after = time.monotonic() - started, process.cpu_times()
        opened = Spool.open(spool)
        messages = sum(len(batch) for batch in opened.batches(opened.segments()))
        return wall, after.user + after.system - before.user - before.system, messages


def run(changes: int = 1_000_000, rounds: int = 3) -> dict[str, float]:
    """Alternate the two, so that a slow spell of the machine hits both."""
    slots = [f"{kind}_{n}" for n in range(rounds) for kind in ("peer", "ours")]
    peers, ours, cpus, messages = [], [], [], 0
    with backlog(changes, slots) as (server, conninfo, end):
        for n in range(rounds):
            peer, _ = drain_with_pg_recvlogical(server, conninfo, f"peer_{n}", end)
            wall, cpu, messages = drain_with_receiver(conninfo, f"ours_{n}", end)
            print(f"  round {n + 1}: pg_recvlogical {peer:.2f} s, receiver {wall:.2f} s (CPU {cpu:.2f} s)")
            peers.append(peer)
            ours.append(wall)
            cpus.append(cpu)
    return {
        "messages": messages,
        "pg_recvlogical_messages_per_s": messages / statistics.median(peers),
        "receiver_messages_per_s": messages / statistics.median(ours),
        "receiver_vs_pg_recvlogical": statistics.median(p / o for p, o in zip(peers, ours, strict=True)),
        "receiver_cpu_s_per_million": statistics.median(cpus) / messages * 1e6,
    }


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name}: {value:,.3f}")
