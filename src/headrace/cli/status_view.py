"""How `headrace status` shows an observation: as tables and sentences for a person, as JSON for a script. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..config.pipeline import PipelineConfig, StoreKind
from ..errors import HeadraceError, RetryPolicy
from ..pipeline.observation import Observation, TableObservation
from ..postgres.slots import SlotState
from ..remedies import ROLLBACK, has_command, name_file, name_table, sql_on_one_line
from ..stores.records import Heartbeat
from ..table_state import State
from ..telemetry.redaction import escape_unprintable, redact_text
from .figures import counted, duration, size

__all__ = ["as_json", "render"]

_COLOURS = {State.READY: "green", State.SYNC_DONE: "green", State.ERRORED: "bold red", State.INIT: "dim"}
_UNKNOWN = size(None)
_LOST = (
    "its changes are lost: set invalidated_slot_behavior to recreate, and the next start makes a new one and copies "
    "all tables again"
)


def render(config: PipelineConfig, seen: Observation, store_error: HeadraceError | None = None) -> list[RenderableType]:
    """The whole, part by part; what needs an operator at the end, where the eye rests."""
    # Without a store, a table without a state says nothing about the pipeline.
    known = store_error is None and config.store.kind is not StoreKind.MEMORY
    parts: list[RenderableType] = [_head(config, seen)]
    if seen.tables:
        parts += [Text(""), _tables(seen, known)]
    parts += [Text(""), _slot_line(config, seen, known), _spool_line(seen)]
    parts += [part for problem in _problems(config, seen, store_error) for part in (Text(""), problem)]
    return parts


def _head(config: PipelineConfig, seen: Observation) -> Text:
    word, colour = {True: ("running", "green"), False: ("not running", "yellow"), None: ("running?", "yellow")}[
        seen.running
    ]
    if not seen.has_slot:
        word, colour = "copies only", "cyan"
    if seen.source is not None and seen.source.publication_error is not None:
        # Whoever holds the slot, or waits, gets nothing.
        word, colour = "the publication does not exist", "bold red"
    head = Text.assemble(("headrace", "bold"), f"  pipeline {config.id}  ", (word, colour))
    where = config.pg_connection
    head.append(f"  {where.host}:{where.port}/{where.name}, publication {config.publication_name}", "dim")
    return head


def _tables(seen: Observation, known: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    several = any(one.destination for one in seen.tables)
    for heading in ("table", "destination", "state") if several else ("table", "state"):
        table.add_column(heading, overflow="fold")
    for heading in ("since", "copied", "position"):
        table.add_column(heading, justify="right", overflow="fold")
    for heading in ("lag", "behind"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for one in seen.tables:
        state = one.state.state if one.state is not None else None
        table.add_row(
            Text(escape_unprintable(_name(one))),
            *((Text(one.destination),) if several else ()),
            _state(state, known),
            _UNKNOWN if one.since is None else duration((datetime.now(UTC) - one.since).total_seconds()),
            _copied(one),
            _UNKNOWN if one.position is None else str(one.position),
            size(one.lag_bytes),
            duration(one.lag_seconds),
            _wish(one) if known else "",
        )
    return table


def _state(state: State | None, known: bool) -> Text:
    if state is None:
        return Text("not seen yet" if known else "not known", "dim")
    return Text(state.value, _COLOURS.get(state, "cyan"))


def _wish(table: TableObservation) -> str:
    if table.request is not None:
        return f"{table.request.value.replace('_', ' ')} asked for"
    return "" if table.state is not None else "taken up at the next start"


def _copied(table: TableObservation) -> str:
    if table.copied_rows is None:
        return _UNKNOWN if table.estimated_rows is None else f"of about {counted(table.estimated_rows)}"
    if table.estimated_rows is None or (table.state is not None and table.state.state is not State.DATA_SYNC):
        return counted(table.copied_rows)
    return f"{counted(table.copied_rows)} of about {counted(table.estimated_rows)}"


def _name(table: TableObservation) -> str:
    return f"OID {table.id}" if table.name is None else str(table.name)


def _slot_line(config: PipelineConfig, seen: Observation, known: bool) -> Text:
    if not seen.has_slot:
        return Text.assemble(("slot  ", "dim"), "none: this pipeline only copies")
    text = Text.assemble(("slot  ", "dim"), config.slot_name, "  ")
    if seen.source is None:
        return text.append("not known: the source cannot be asked", "yellow")
    slot = seen.source.slot
    if slot is None:
        if seen.begun or not known:
            return text.append("does not exist", "bold red" if known else "yellow")
        return text.append("not made yet: the first start does", "dim")
    if slot.lost:
        text.append(f"lost ({slot.invalidation_reason or slot.wal_status})", "bold red")
    else:
        text.append(f"read by server process {slot.active_pid}" if slot.active else "nobody reads it")
    text.append(f", confirmed {slot.confirmed_flush_lsn or _UNKNOWN}")
    text.append(f", {size(seen.source.unconfirmed_bytes)} to come, {size(seen.source.retained_bytes)} of WAL kept")
    return text.append(f", wal_status {slot.wal_status or _UNKNOWN}" + _danger(slot))


def _danger(slot: SlotState) -> str:
    return "" if slot.safe_wal_size is None else f", {size(max(0, slot.safe_wal_size))} until it may be lost"


def _spool_line(seen: Observation) -> Text:
    text = Text.assemble(("spool ", "dim"))
    if seen.spool_error is not None:
        return text.append(str(seen.spool_error), "yellow")
    if seen.spool is None:
        return text.append("none yet", "dim")
    count = len(seen.spool.segments)
    text.append(f"{count} segment{'' if count == 1 else 's'}, {size(seen.spool.bytes)}")
    if seen.spool.oldest_seconds is not None:
        text.append(f", the oldest {duration(seen.spool.oldest_seconds)} old")
    return text.append(f", covers up to {seen.spool.covered or _UNKNOWN}")


def _problems(config: PipelineConfig, seen: Observation, store_error: HeadraceError | None) -> list[Text]:
    found = []
    for what, error in (("source", seen.source_error), ("store", store_error)):
        if error is not None:
            found.append(_problem(f"the {what} cannot be read: {error}", error.hint))
    if seen.source is not None and seen.source.publication_error is not None:
        error = seen.source.publication_error
        found.append(_problem(str(error), error.hint))
    if seen.slot_lost:
        gone = seen.source is not None and seen.source.slot is None
        what = "does not exist any more" if gone else "is lost"
        found.append(_problem(f"replication slot {config.slot_name} {what}", _LOST))
    if seen.spool_error is not None:
        found.append(_problem(f"the spool cannot be read: {seen.spool_error}", seen.spool_error.hint))
    found += [_problem(problem.message, problem.hint) for problem in seen.problems]
    for table in seen.errored:
        found.append(_failure(table))
    if not seen.tables and store_error is None and seen.source is None:
        found.append(Text("no table is known: the pipeline has not run here yet", "dim"))
    if config.store.kind is StoreKind.MEMORY:
        found.append(Text("the store is in memory: states are known to the running process only", "dim"))
    return found


def _failure(table: TableObservation) -> Text:
    state, name = table.state, table.destination
    assert state is not None
    where = f" at {name}" if name else ""
    solution = state.solution or ""
    again = "it is tried again by itself" if state.retry_policy is RetryPolicy.TIMED else f"then: {ROLLBACK}"
    if state.retry_policy is not RetryPolicy.TIMED and has_command(solution):
        again = ""  # not every table that failed is brought back by a rollback: the solution knows
    advice = name_table("; ".join(filter(None, (solution, again))), _name(table), name)
    return _problem(f"{_name(table)} failed{where}: {state.reason}", advice)


def _problem(what: str, advice: str) -> Text:
    problem, remedy = escape_unprintable(redact_text(what)), escape_unprintable(sql_on_one_line(name_file(advice)))
    return Text.assemble(("error ", "bold red"), problem, "\n", ("what to do ", "green"), remedy)


def as_json(config: PipelineConfig, seen: Observation, store_error: HeadraceError | None = None) -> dict[str, Any]:
    """The same for a script. LSNs are text as Postgres writes them, times ISO 8601, durations seconds."""
    return {
        "pipeline": config.id,
        "publication": config.publication_name,
        "running": seen.running,
        "tables": [_table_json(table) for table in seen.tables],
        "destinations": [
            {"name": name or None, "tables": [_table_json(table) for table in seen.tables if table.destination == name]}
            for name in dict.fromkeys(table.destination for table in seen.tables)
        ],
        "slot": _slot_json(config, seen),
        "spool": None if seen.spool is None else _spool_json(seen),
        "heartbeats": {name: _heartbeat_json(seen, report) for name, report in seen.heartbeats.items()},
        "problems": [{"message": redact_text(one.message), "hint": name_file(one.hint)} for one in seen.problems],
        "errors": {
            place: {"message": redact_text(str(error)), "hint": name_file(error.hint)}
            for place, error in (("source", seen.source_error), ("spool", seen.spool_error), ("store", store_error),
                                 ("publication", seen.source.publication_error if seen.source else None))
            if error is not None
        },
    }  # fmt: skip


def _heartbeat_json(seen: Observation, heartbeat: Heartbeat) -> dict[str, Any]:
    return {
        "written_at": heartbeat.written_at.isoformat(),
        "seconds_ago": round(heartbeat.silent_s(seen.observed_at), 1),
        "host": heartbeat.host,
        "pid": heartbeat.pid,
        "state": heartbeat.state,
        "receiver": heartbeat.receiver,
        "receiver_silent_seconds": heartbeat.receiver_silent_s,
        "applied": str(heartbeat.applied),
    }


def _table_json(table: TableObservation) -> dict[str, Any]:
    state = table.state
    return {
        "id": table.id,
        "schema": table.name.schema if table.name is not None else None,
        "name": table.name.name if table.name is not None else None,
        "state": state.state.value if state is not None else None,
        "since": _text(table.since.isoformat() if table.since is not None else None),
        "reason": state.reason if state is not None else None,
        "solution": name_file(state.solution) if state is not None and state.solution is not None else None,
        "retry": _text(state.retry_policy.value if state is not None and state.retry_policy is not None else None),
        "position": _text(table.position),
        "copied_rows": table.copied_rows,
        "estimated_rows": table.estimated_rows,
        "lag_bytes": table.lag_bytes,
        "lag_seconds": table.lag_seconds,
        "request": table.request.value if table.request is not None else None,
        "destination": table.destination or None,
    }


def _slot_json(config: PipelineConfig, seen: Observation) -> dict[str, Any]:
    source = seen.source
    slot = source.slot if source is not None else None
    found: dict[str, Any] = {"name": config.slot_name, "exists": None if source is None else slot is not None}
    if source is not None and slot is not None:
        found |= {
            "active": slot.active,
            "active_pid": slot.active_pid,
            "lost": slot.lost,
            "wal_status": slot.wal_status,
            "invalidation_reason": slot.invalidation_reason,
            "confirmed_flush_lsn": _text(slot.confirmed_flush_lsn),
            "unconfirmed_bytes": source.unconfirmed_bytes,
            "retained_bytes": source.retained_bytes,
            "safe_wal_size": slot.safe_wal_size,
        }
    return found


def _spool_json(seen: Observation) -> dict[str, Any]:
    assert seen.spool is not None
    return {
        "segments": len(seen.spool.segments),
        "bytes": seen.spool.bytes,
        "oldest_seconds": seen.spool.oldest_seconds,
        "covered": _text(seen.spool.covered),
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)
