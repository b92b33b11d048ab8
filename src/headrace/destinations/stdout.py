"""One line of JSON per event, in commit order, and per copied row: for pipes, trials and log shippers."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any, TextIO

from ..errors import ConfigError, DestinationError, RetryPolicy
from ..events import UNCHANGED, Begin, Commit, Delete, Event, Insert, Relation, Row, Truncate, TruncateOptions, Update
from ..lsn import Lsn
from ..schema import ReplicatedTableSchema
from .batch import EventBatch
from .contract import DestinationContext, Durability
from .rows import Rows

__all__ = ["StdoutDestination", "event_object", "json_value"]

_Object = dict[str, Any]


class StdoutDestination:
    """Writes to standard output, or to another stream of text.

    It keeps no record of what it wrote: after a crash the lines of the last batch may come again, with the same
    `commit_lsn` and `tx_ordinal`. A transaction is whole when its `commit` line is there.
    """

    name = "stdout"
    whole_batches = True

    def __init__(self, stream: TextIO | None = None, format: str = "json") -> None:
        if format != "json":
            msg = f"stdout has no format {format!r}"
            raise ConfigError(msg, hint="use json")
        self._stream = stream or sys.stdout
        # Tables are copied side by side; their lines must not run into each other.
        self._lock = threading.Lock()

    def startup(self, context: DestinationContext) -> None:
        pass

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        return None

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        return None

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        """Tells readers that what they have of the table is void: its rows come anew."""
        self._write([{"kind": "drop", "table": str(schema.table.name)}])

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        self.drop_table_for_copy(schema)

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        table = str(schema.table.name)
        for batch in rows.batches():
            self._write({"kind": "row", "table": table, "row": json_value(row)} for row in _plain(batch))
        return Durability.DURABLE

    def follows(self, relation: Relation) -> bool:
        """Whoever reads the events goes on with the new columns."""
        del relation
        return True

    def write_events(self, batch: EventBatch) -> Durability:
        self._write(event_object(event) for event in batch.events())
        return Durability.DURABLE

    def flush(self) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def _write(self, objects: Iterable[_Object]) -> None:
        with self._lock:
            for line in objects:
                self._print(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
            self._guarded(self._stream.flush)

    def _print(self, text: str) -> None:
        self._guarded(lambda: self._stream.write(text))

    def _guarded(self, call: Callable[[], object]) -> None:
        # Around the stream only: what reading the rows raises is not the stream's.
        try:
            call()
        except BrokenPipeError:
            msg = "nobody reads the output any more"
            hint = "start the pipeline again with a reader that stays until the end"
            raise DestinationError(msg, detail="broken pipe", hint=hint, retry=RetryPolicy.MANUAL) from None
        except ValueError:
            msg = "the output stream is closed"
            raise DestinationError(
                msg, hint="give StdoutDestination a stream that stays open", retry=RetryPolicy.MANUAL
            ) from None


def event_object(event: Event) -> _Object:
    """The event as a JSON object."""
    if isinstance(event, Relation):
        return _relation(event)
    place: _Object = {"commit_lsn": str(event.commit_lsn)}
    if isinstance(event, Commit):
        place["end_lsn"] = str(event.end_lsn)
    elif not isinstance(event, Begin):
        place |= {"tx_ordinal": event.tx_ordinal, "start_lsn": str(event.start_lsn)}
    place |= {"xid": event.xid, "commit_time": json_value(event.commit_time)}
    return {"kind": type(event).__name__.lower(), **_content(event), **place}


def _content(event: Event) -> _Object:
    if isinstance(event, Truncate):
        options = [option.name for option in TruncateOptions if option in event.options]
        return {"tables": [str(schema.table.name) for schema in event.schemas], "options": options}
    if not isinstance(event, Insert | Update | Delete):
        return {}
    content: _Object = {"table": str(event.schema.table.name)}
    if not isinstance(event, Delete):
        content |= _row(event.row)
    if not isinstance(event, Insert) and event.old is not None:
        content["old"] = _row(event.old)["row"]
        content["old_kind"] = event.old_kind.name.lower() if event.old_kind else None
    return content


def _row(row: Row) -> _Object:
    """`row` without the TOASTed values that were not sent; those are named under `unchanged`."""
    sent = {name: json_value(value) for name, value in row.items() if value is not UNCHANGED}
    unchanged = [name for name, value in row.items() if value is UNCHANGED]
    return {"row": sent, "unchanged": unchanged} if unchanged else {"row": sent}


def _relation(event: Relation) -> _Object:
    return {
        "kind": "relation",
        "table": str(event.new.table.name),
        "columns": [{"name": column.name, "type": column.type.name} for column in event.new.columns],
        "identity": [column.name for column in event.new.identity],
        "first": event.old is None,
        "commit_lsn": str(event.commit_lsn),
        "start_lsn": str(event.start_lsn),
    }


def json_value(value: object) -> Any:
    """A value as JSON has it; what JSON cannot say exactly is text, as Postgres prints it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(timezone.utc)).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def _plain(batch: Any) -> Iterator[_Object]:
    yield from batch.to_pylist(maps_as_pydicts="strict")
