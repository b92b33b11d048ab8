"""One line per event, in commit order, and per copied row: JSON for pipes and log shippers, colours for people."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from ..errors import ConfigError, DestinationError, RetryPolicy
from ..events import Event, Insert, Relation, Update
from ..lsn import Lsn
from ..pgtypes.python_values import python_rows
from ..schema import ReplicatedTableSchema
from .batch import Changes, EventBatch
from .contract import DestinationContext, Durability
from .json_lines import copy_object, drop_object, event_object, json_line, json_value, rejected_object
from .pretty import pretty_copy, pretty_drop, pretty_event, pretty_rejected, pretty_row
from .rows import Rows

__all__ = ["EventLines", "StdoutDestination"]

_FORMATS = ("json", "pretty", "auto")

_Rejected = Mapping[str, Any]
"""A value that is set aside, with the fields of `REJECTED_FIELDS`."""
_Place = tuple[int, int]
"""Commit LSN and ordinal."""


class EventLines:
    """Writes events and rows to a stream of text, in one of two forms. `auto` is pretty on a terminal, else JSON."""

    def __init__(self, stream: TextIO, format: str) -> None:
        if format not in _FORMATS:
            msg = f"stdout has no format {format!r}"
            raise ConfigError(msg, hint=f"use {', '.join(_FORMATS)}")
        self._stream = stream
        pretty = format == "pretty" or (format == "auto" and not stream.closed and stream.isatty())
        # Lines are wrapped by the terminal: a break of ours would be copied along.
        self._console = Console(file=stream, highlight=False, soft_wrap=True) if pretty else None

    def events(self, events: Iterable[Event], rejected: Mapping[_Place, Sequence[_Rejected]] | None = None) -> None:
        """The events, each with what is set aside of its row behind it."""
        if not rejected:
            self._write(events, pretty_event, event_object)
            return
        for event in events:
            self._write([event], pretty_event, event_object)
            if isinstance(event, Insert | Update):
                self.rejected(event.schema, rejected.get((event.commit_lsn, event.tx_ordinal), ()))

    def rows(self, schema: ReplicatedTableSchema, rows: Iterable[dict[str, Any]]) -> None:
        table = str(schema.table.name)
        self._write(
            rows,
            lambda row: pretty_row(schema, row),
            lambda row: {"kind": "row", "table": table, "row": json_value(row)},
        )

    def rejected(self, schema: ReplicatedTableSchema, values: Iterable[_Rejected]) -> None:
        self._write(values, partial(pretty_rejected, schema), partial(rejected_object, schema))

    def copy(self, schema: ReplicatedTableSchema, part: int) -> None:
        self._write([schema], pretty_copy, lambda schema: copy_object(schema, part))

    def drop(self, schema: ReplicatedTableSchema) -> None:
        self._write([schema], pretty_drop, drop_object)

    def flush(self) -> None:
        self._guarded(self._stream.flush)

    def _write(
        self, things: Iterable[Any], pretty: Callable[[Any], Text], as_object: Callable[[Any], dict[str, Any]]
    ) -> None:
        for thing in things:
            line = json_line(as_object(thing)) if self._console is None else self._rendered(pretty(thing))
            self._guarded(partial(self._stream.write, line))

    def _rendered(self, text: Text) -> str:
        assert self._console is not None
        # Not printed by it: what becomes of a broken pipe is decided here.
        with self._console.capture() as captured:
            self._console.print(text)
        return captured.get()

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


class StdoutDestination:
    """Writes to standard output, or to another stream of text.

    It keeps no record of what it wrote: after a crash the lines of the last batch may come again, with the same
    `commit_lsn` and `tx_ordinal`, and a part of a copy under the same number. A transaction is whole when its `commit`
    line is there.
    """

    name = "stdout"
    whole_batches = True

    def __init__(self, stream: TextIO | None = None, format: str = "auto") -> None:
        self._lines = EventLines(stream or sys.stdout, format)
        # Tables are copied side by side; their lines must not run into each other.
        self._lock = threading.Lock()

    def startup(self, context: DestinationContext) -> None:
        pass

    def claim(self) -> None:
        """Cannot fence: a stream has no record of who writes to it."""

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        return None

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        return None

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        """Tells readers that what they have of the table is void: its rows come anew."""
        with self._lock:
            self._lines.drop(schema)
            self._lines.flush()

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        self.drop_table_for_copy(schema)

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        with self._lock:
            self._lines.copy(schema, part)
            self._lines.flush()
        for batch in rows.batches():
            with self._lock:
                self._lines.rows(schema, python_rows(batch))
                self._lines.flush()
        with self._lock:
            self._lines.rejected(schema, _rejected(rows))
            self._lines.flush()
        return Durability.DURABLE

    def follows(self, relation: Relation) -> bool:
        """Whoever reads the lines goes on with the new columns, and must be told what existing rows have become."""
        return not relation.rewritten

    def write_events(self, batch: EventBatch) -> Durability:
        with self._lock:
            self._lines.events(batch.events(), _rejected_by_place(batch))
            self._lines.flush()
        return Durability.DURABLE

    def flush(self) -> None:
        pass

    def shutdown(self) -> None:
        pass


def _rejected(rows: Rows) -> Iterator[_Rejected]:
    found = rows.rejected()
    if found is not None:
        for batch in found.batches():
            yield from batch.to_pylist()


def _rejected_by_place(batch: EventBatch) -> dict[_Place, list[_Rejected]]:
    places: dict[_Place, list[_Rejected]] = {}
    for part in batch.tables:
        for step in part.steps:
            if isinstance(step, Changes):
                for value in _rejected(step.rows):
                    places.setdefault((value["commit_lsn"], value["tx_ordinal"]), []).append(value)
    return places
