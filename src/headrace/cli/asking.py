"""How one process asks something of a pipeline that another one runs: through the store, by the name of a table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import typer

from ..config.pipeline import PipelineConfig
from ..errors import HeadraceError, TableNotFound
from ..postgres.connection import connect
from ..postgres.publications import published_tables
from ..postgres.slots import slot_state
from ..remedies import name_file
from ..schema import TableName
from ..stores import PipelineStore, RequestKind, TableRequest
from ..table_state import State
from .exit_code import ExitCode
from .terminal import say

__all__ = ["SourceView", "ask", "at_destination", "find_table", "known_tables", "look_at_source", "waited", "when"]

_TURN_S = 0.3
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class SourceView:
    """What the source says: the publication's tables, and whether somebody reads the slot. None: it says nothing."""

    tables: Mapping[int, TableName]
    running: bool | None
    error: HeadraceError | None = None
    """Why it says nothing."""


def look_at_source(config: PipelineConfig) -> SourceView:
    """Ask the source, if it answers: names are known to the store too, once a table was copied."""
    try:
        with connect(config.pg_connection, "status", pipeline=config.id) as connection:
            slot = slot_state(connection, config.slot_name)
            running = slot is not None and slot.active
            tables = published_tables(connection, config.publication_name)
            return SourceView({schema.table.id: schema.table.name for schema in tables}, running)
    except HeadraceError as error:
        return SourceView({}, None, error)


def known_tables(store: PipelineStore, source: SourceView) -> dict[int, TableName]:
    """The tables that have a state, with their names as they are now, or as they were when last copied."""
    names = {version.table_id: version.schema.table.name for version in store.get_table_schemas()}
    names.update(source.tables)
    return {table_id: names[table_id] for table_id in store.get_table_states() if table_id in names}


def find_table(
    name: str, tables: Mapping[int, TableName], where: str = "this pipeline", unasked: HeadraceError | None = None
) -> int:
    """The OID of the table that an operator means: `schema.table`, quoted or not, or a table's name if one has it.

    Raises TableNotFound, which names the nearest, or what to do about the source that could not be asked.
    """
    exact = [table_id for table_id, known in tables.items() if name in (str(known), known.quoted)]
    found = exact or [table_id for table_id, known in tables.items() if name == known.name]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(sorted(str(tables[table_id]) for table_id in found))
        raise TableNotFound(f"several tables are called {name}: {several}", hint="give it as schema.table")
    if unasked is not None:
        detail = f"the source, which may know it, cannot be asked: {unasked}"
        raise TableNotFound(f"no table {name} is known to {where}", detail=detail, hint=unasked.hint)
    raise TableNotFound(f"no table {name} in {where}", hint=_nearest(name, tables.values()))


def _nearest(name: str, tables: Iterable[TableName]) -> str:
    names = sorted(str(table) for table in tables)
    if not names:
        return "none is known yet"
    bare = {table.rpartition(".")[2]: table for table in names}
    close = get_close_matches(name, names, n=1) or [bare[match] for match in get_close_matches(name, bare, n=1)]
    if close:
        return f"did you mean {close[0]}?"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"it has {', '.join(names[:_SHOWN])}{more}"


def ask(store: PipelineStore, kind: RequestKind, table_ids: Iterable[int]) -> list[TableRequest]:
    """Write the requests; the pipeline withdraws each when it has done it."""
    requests = [TableRequest(kind, table_id) for table_id in table_ids]
    for request in requests:
        store.ask(request)
    return requests


def at_destination(name: str | None) -> str:
    """Where, as a part of a sentence; nothing where that goes without saying."""
    return "" if name is None else f" at {name}"


def when(running: bool | None) -> str:
    """When the pipeline will see what was asked, as a sentence."""
    if running is None:
        return (
            "whether it runs is not known, as the source cannot be asked: it sees this within seconds or when it starts"
        )
    if running:
        return "it runs, and takes this up within seconds"
    return "it does not run, and takes this up when it starts"


def waited(asked: Sequence[tuple[PipelineStore, list[TableRequest]]]) -> ExitCode:
    """Until the pipeline has done what was asked and the tables stream, or one of them has failed, or Ctrl-C."""
    typer.echo("waiting until it is done (Ctrl-C stops waiting, the request stands)", err=True)
    try:
        return max(_wait(store, requests) for store, requests in asked)
    except KeyboardInterrupt:
        typer.echo("no longer waiting; the request stands", err=True)
        return ExitCode.CUT_OFF


def _wait(store: PipelineStore, requests: list[TableRequest]) -> ExitCode:
    waiting = list(requests)
    while waiting:
        time.sleep(_TURN_S)
        standing = store.get_requests()
        states = store.get_table_states()
        ended = [
            request for request in waiting
            if request not in standing
            and (request.table_id not in states or states[request.table_id].state in (State.READY, State.ERRORED))
        ]  # fmt: skip
        waiting = [request for request in waiting if request not in ended]
    states = store.get_table_states()
    failed = [states[r.table_id] for r in requests if r.table_id in states and states[r.table_id].reason is not None]
    for state in failed:
        say(f"failed: {state.reason} ({name_file(state.solution or '')})", err=True)
    return ExitCode.NOT_WELL if failed else ExitCode.OK
