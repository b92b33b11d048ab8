"""cli.status_view: what an operator must know is on the page, and a script finds the same in the JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headrace.cli.status_view import as_json, render
from headrace.cli.terminal import SafeConsole
from headrace.config.pipeline import PipelineConfig
from headrace.errors import HeadraceError, PublicationNotFound, RetryPolicy, SourceConnectionFailed, StoreIoError
from headrace.lsn import Lsn
from headrace.pipeline.observation import Observation, SourceObservation, SpoolObservation, TableObservation
from headrace.postgres.slots import SlotState
from headrace.remedies import file_named
from headrace.schema import TableName
from headrace.spool import Segment
from headrace.stores import RequestKind
from headrace.table_state import State, TableState

CONFIG = PipelineConfig.model_validate(
    {"id": 3, "publication_name": "p", "pg_connection": {"host": "h", "name": "n", "username": "u"}}
)
NOW = datetime.now(UTC)
SLOT = SlotState("headrace_3", "pgoutput", "n", True, 4711, "reserved", Lsn(1), Lsn(0x10), None, False, None, False)
ORDERS = TableObservation(
    1, TableName("public", "orders"), TableState(State.READY), NOW, Lsn(0x20), 1200, 1300, 2048, 1.5
)
FAILED = TableState(State.ERRORED, reason="no such type", solution="give it one", retry_policy=RetryPolicy.MANUAL)
SPOOL = SpoolObservation([Segment(Lsn(1), Lsn(5), (), 3 << 20, NOW.timestamp() - 61)], Lsn(0x30))
WELL = Observation([ORDERS], SourceObservation(SLOT, Lsn(0x820), 100, 200), None, SPOOL, None)


def page(seen: Observation, config: PipelineConfig = CONFIG, store_error: HeadraceError | None = None) -> str:
    out = io.StringIO()
    for part in render(config, seen, store_error):
        Console(file=out, width=200).print(part)
    return out.getvalue()


def slot(seen: Observation, **changes: Any) -> Observation:
    assert seen.source is not None
    return replace(seen, source=replace(seen.source, slot=replace(SLOT, **changes)))


def test_a_pipeline_that_is_well() -> None:
    text = page(WELL)
    for part in (
        "pipeline 3  running",
        "h:5432/n, publication p",
        "public.orders  ready",
        "1,200",
        "0/20  2.0 kB   1.5 s",
        "headrace_3  read by server process 4711, confirmed 0/10, 100 B to come, 200 B of WAL kept, wal_status",
        "1 segment, 3.0 MB, the oldest ",
        " old, covers up to 0/30",
    ):
        assert part in text
    assert "error" not in text
    assert not WELL.errored
    assert not WELL.slot_lost


def test_a_failed_table_says_why_and_what_to_do() -> None:
    seen = replace(WELL, tables=[ORDERS, replace(ORDERS, name=TableName("public", "b"), state=FAILED)])
    text = page(seen)
    assert "error public.b failed: no such type" in text
    assert "what to do give it one; then: headrace rollback PIPELINE.YAML public.b" in text
    with file_named("my pipeline.yaml"):
        assert "then: headrace rollback 'my pipeline.yaml' public.b" in page(seen)
        damaged = replace(FAILED, solution="copy it again: headrace resync PIPELINE.YAML public.orders")
        text = page(replace(WELL, tables=[replace(ORDERS, state=damaged)]))
    assert "what to do copy it again: headrace resync 'my pipeline.yaml' public.orders\n" in text
    assert "rollback" not in text
    timed = replace(FAILED, retry_policy=RetryPolicy.TIMED)
    assert "it is tried again by itself" in page(replace(WELL, tables=[replace(ORDERS, state=timed)]))
    (found,) = [table for table in as_json(CONFIG, seen)["tables"] if table["name"] == "b"]
    assert (found["state"], found["reason"], found["solution"], found["retry"]) == (
        "errored", "no such type", "give it one", "manual",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"wal_status": "lost", "active": False}, "lost (lost)"),
        ({"invalidation_reason": "wal_removed", "active": False}, "lost (wal_removed)"),
    ],
)
def test_a_lost_slot(changes: dict[str, Any], told: str) -> None:
    seen = slot(WELL, **changes)
    assert seen.slot_lost
    assert told in page(seen)
    assert "error replication slot headrace_3 is lost" in page(seen)
    assert "not running" in page(seen)
    assert as_json(CONFIG, seen)["slot"]["lost"] is True


def test_a_slot_that_is_not_there_is_lost_only_if_tables_have_begun() -> None:
    gone = replace(WELL, source=SourceObservation(None))
    assert gone.slot_lost
    assert "does not exist any more" in page(gone)
    new = replace(gone, tables=[TableObservation(1, ORDERS.name, None), replace(ORDERS, state=TableState(State.INIT))])
    assert not new.slot_lost
    assert "not made yet" in page(new)
    assert "not seen yet" in page(new)
    assert as_json(CONFIG, new)["slot"] == {"name": "headrace_3", "exists": False}


def test_without_its_publication_a_pipeline_is_not_called_running() -> None:
    assert WELL.source is not None
    missing = PublicationNotFound('publication "shop" does not exist', hint="create it")
    seen = replace(WELL, source=replace(WELL.source, publication_error=missing))
    head = page(seen).splitlines()[0]
    assert "the publication does not exist" in head
    assert "running" not in head
    assert 'error publication "shop" does not exist' in page(seen)
    assert as_json(CONFIG, seen)["errors"]["publication"]["hint"] == "create it"


def test_a_slot_in_danger_says_how_much_is_left() -> None:
    assert "1.0 MB until it may be lost" in page(slot(WELL, safe_wal_size=1 << 20))


def test_a_source_that_is_away_leaves_the_rest() -> None:
    away = SourceConnectionFailed("cannot connect", detail="password=hunter2 refused", hint="start it")
    seen = Observation([replace(ORDERS, name=None, lag_bytes=None)], None, away, SPOOL, None)
    text = page(seen)
    assert "running?" in text
    assert "OID 1" in text
    assert "error the source cannot be read: cannot connect: password=*** refused" in text
    assert "what to do start it" in text
    assert "1 segment" in text
    found = as_json(CONFIG, seen)
    assert (found["running"], found["slot"]) == (None, {"name": "headrace_3", "exists": None})
    assert found["errors"]["source"]["hint"] == "start it"


def test_a_store_that_cannot_be_read_is_told() -> None:
    text = page(replace(WELL, tables=[]), store_error=StoreIoError("it is locked"))
    assert "error the store cannot be read: it is locked" in text


def test_a_copy_says_how_far_it_is() -> None:
    copying = replace(ORDERS, state=TableState(State.DATA_SYNC), position=None, lag_bytes=None, lag_seconds=None)
    assert "1,200 of about 1,300" in page(replace(WELL, tables=[copying]))


def test_what_is_asked_for_is_shown() -> None:
    asked = replace(ORDERS, request=RequestKind.ROLLBACK_TO_INIT)
    assert "rollback to init asked for" in page(replace(WELL, tables=[asked]))


def test_a_pipeline_that_only_copies_has_no_slot_to_lose() -> None:
    seen = replace(WELL, source=SourceObservation(None), has_slot=False)
    assert not seen.slot_lost
    assert "copies only" in page(seen)
    assert seen.running is None


def test_the_json_is_json() -> None:
    found = json.loads(json.dumps(as_json(CONFIG, WELL)))
    assert found["tables"][0]["position"] == "0/20"
    assert found["spool"]["segments"] == 1
    assert found["errors"] == {}
    assert found["running"] is True


def test_several_destinations_have_a_line_each_and_a_list_each() -> None:
    lake, duck = replace(ORDERS, destination="lake"), replace(ORDERS, destination="duck", state=FAILED)
    seen = replace(WELL, tables=[lake, duck])
    text = page(seen)
    assert "table          destination  state" in text
    assert "public.orders  lake         ready" in text
    assert "public.orders  duck         errored" in text
    assert "error public.orders failed at duck: no such type" in text
    assert "then: headrace rollback PIPELINE.YAML public.orders --destination duck" in text
    found = as_json(CONFIG, seen)
    assert [(one["name"], [table["state"] for table in one["tables"]]) for one in found["destinations"]] == [
        ("lake", ["ready"]),
        ("duck", ["errored"]),
    ]
    assert [table["destination"] for table in found["tables"]] == ["lake", "duck"]
    assert [one["name"] for one in as_json(CONFIG, WELL)["destinations"]] == [None]
    assert "destination" not in page(WELL)


def test_a_name_does_not_write_a_line() -> None:
    """The remedy is a command that a shell reads as it is printed."""
    name = TableName("public", "new\nerror the slot is lost")
    failed = replace(FAILED, reason=f"table {name} has no key", solution=f"ALTER TABLE {name.quoted} SET LOGGED")
    text = page(replace(WELL, tables=[replace(ORDERS, name=name, state=failed)]))
    assert len(text.splitlines()) == len(page(replace(WELL, tables=[replace(ORDERS, state=FAILED)])).splitlines())
    assert [line for line in text.splitlines() if line.startswith("error the slot")] == []
    assert r"error public.new\nerror the slot is lost failed: table public.new\nerror the slot is lost has" in text
    assert r'what to do ALTER TABLE "public".U&"new\+00000aerror the slot is lost" SET LOGGED; then: ' in text
    assert r"headrace rollback PIPELINE.YAML $'public.new\x0aerror the slot is lost'" in text


def test_names_do_not_steer_the_terminal() -> None:
    """Anybody who may create a table at the source names it."""
    name = "public.esc\x1b[2J\x1b]0;title\x07\x9b31m\u202e"
    out = io.StringIO()
    console = SafeConsole(file=out, force_terminal=True, width=200)
    table = Table("name")
    table.add_row(Text(name, "red"))
    console.print(table)
    console.print(Text(name), soft_wrap=True)
    console.print(escape(name), highlight=False)
    found = out.getvalue()
    assert found.count(r"public.esc\x1b") == 3
    assert [steering for steering in ("\x1b[2J", "\x1b]0", "\x9b", "\u202e") if steering in found] == []
