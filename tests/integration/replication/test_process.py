"""The receiver as a process: commands, reports, secrets, and what becomes of it when its parent dies."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from awaiting import until
from headrace.errors import ConfigError, HeadraceError, SlotNotFound
from headrace.replication import ReceiverProcess
from receiving import Source


def test_it_spools_takes_commands_and_stops(source: Source) -> None:
    with ReceiverProcess(source.config(durable=False)) as receiver:
        end = source.insert(1, 10)
        receiver.wait(lambda status: status.spooled >= end, 30)
        assert receiver.status.confirmed < end
        receiver.apply(end)
        receiver.wait(lambda status: status.confirmed >= end, 30)
    assert source.inserted() == list(range(1, 11))
    assert receiver.status.state == "stopped"


def test_no_secret_is_in_the_process_list_or_environment(source: Source) -> None:
    with ReceiverProcess(source.config()) as receiver:
        receiver.wait(lambda status: status.state == "streaming", 30)
        process = psutil.Process(receiver.pid)
        password = source.connection.info.password
        assert password
        assert password not in " ".join(process.cmdline())
        assert password not in " ".join(process.environ().values())


def test_it_logs_json_to_standard_error(source: Source, capfd: pytest.CaptureFixture[str]) -> None:
    with ReceiverProcess(source.config().model_copy(update={"pipeline_id": 7})) as receiver:
        receiver.wait(lambda status: status.state == "streaming", 30)
    events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    (start,) = (event for event in events if event["event"] == "start")
    assert (start["level"], start["pipeline"], start["slot"]) == ("info", 7, source.slot)


def test_an_error_that_ends_it_reaches_the_parent(source: Source) -> None:
    source.connection.execute("SELECT pg_drop_replication_slot(%s)", (source.slot,))
    with ReceiverProcess(source.config()) as receiver, pytest.raises(SlotNotFound, match=source.slot):
        receiver.wait(lambda status: status.state == "streaming", 30)


def test_a_setting_that_cannot_work_reaches_the_parent(source: Source) -> None:
    with ReceiverProcess(source.config(uri="nosuch://x/y")) as receiver, pytest.raises(ConfigError, match="nosuch"):
        receiver.wait(lambda status: status.state == "streaming", 30)


def test_a_killed_receiver_is_noticed(source: Source) -> None:
    with ReceiverProcess(source.config()) as receiver:
        receiver.wait(lambda status: status.state == "streaming", 30)
        os.kill(receiver.pid, signal.SIGKILL)
        with pytest.raises(HeadraceError, match="ended"):
            receiver.wait(lambda status: status.state == "stopped", 30)


def test_sigterm_stops_it_in_order_and_ctrl_c_is_left_to_the_parent(source: Source) -> None:
    receiver = ReceiverProcess(source.config(segment_age_ms=60_000))
    end = source.insert(1, 10)
    receiver.wait(lambda status: status.received >= end, 30)
    os.kill(receiver.pid, signal.SIGINT)
    os.kill(receiver.pid, signal.SIGTERM)
    receiver.wait(lambda status: status.state == "stopped", 30)
    receiver.stop()
    assert source.inserted() == list(range(1, 11))


def test_a_receiver_does_not_outlive_its_parent(source: Source, tmp_path: Path) -> None:
    # Given a parent that starts a receiver and says its pid
    config = tmp_path / "config.pickle"
    config.write_bytes(pickle.dumps(source.config()))
    script = """
        import pickle, sys, time
        from headrace.replication import ReceiverProcess
        receiver = ReceiverProcess(pickle.load(open(sys.argv[1], "rb")))
        receiver.wait(lambda status: status.state == "streaming", 60)
        print(receiver.pid, flush=True)
        time.sleep(600)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(config)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    # When the parent is killed
    parent.kill()
    parent.wait()
    parent.stdout.close()
    # Then the receiver ends too, and lets go of the slot
    psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    until(lambda: not source.active())


def test_connections_are_named_after_their_role(source: Source, connection: psycopg.Connection[Any]) -> None:
    with source.receiving() as running:
        running.wait(lambda status: status.state == "streaming")
        names = connection.execute("SELECT application_name FROM pg_stat_replication").fetchall()
        assert ("headrace_receiver_0",) in names
