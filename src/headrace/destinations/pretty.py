"""Events for people to read: a line each, in colours, on a terminal.

What comes from the database is shown so that it can do nothing to the terminal: characters that do not print are
written as escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.text import Text

from ..events import UNCHANGED, Begin, Commit, Delete, Event, Insert, Relation, Row, Truncate, TruncateOptions, Update
from ..schema import Column, ReplicatedTableSchema, TableName
from ..schema_change import SchemaChange, schema_change
from ..telemetry.redaction import escape_unprintable
from ..type_change import type_text
from .json_lines import json_value

__all__ = ["pretty_copy", "pretty_drop", "pretty_event", "pretty_rejected", "pretty_row", "pretty_value"]

_SHOWN = 60
"""Characters of a value that are shown: a line should stay one that can be taken in."""

_STYLES = {
    "INSERT": "bold green",
    "UPDATE": "bold yellow",
    "DELETE": "bold red",
    "TRUNCATE": "bold magenta",
    "ALTER": "bold cyan",
    "COPY": "cyan",
    "ROW": "green",
    "REJECTED": "red",
    "DROP": "magenta",
}
_INDENT = "  "


def pretty_event(event: Event) -> Text:
    """One event, without a line break at its end."""
    if isinstance(event, Begin):
        moment = event.commit_time.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        return Text(f"BEGIN {event.xid}  {moment} UTC  {event.commit_lsn}", "dim")
    if isinstance(event, Commit):
        return Text(f"COMMIT {event.xid}", "dim")
    if isinstance(event, Truncate):
        return _truncate(event)
    if isinstance(event, Relation):
        return _headed("ALTER", [event.new.table.name], _alterations(event))
    return _headed(type(event).__name__.upper(), [event.schema.table.name], _change(event))


def pretty_copy(schema: ReplicatedTableSchema) -> Text:
    """Rows of the table follow, with these columns."""
    return _headed("COPY", [schema.table.name], [Text(_printable(_described(schema)))])


def pretty_row(schema: ReplicatedTableSchema, row: Row) -> Text:
    """A row of an initial copy."""
    return _headed("ROW", [schema.table.name], _values(schema, row))


def pretty_rejected(schema: ReplicatedTableSchema, value: Mapping[str, Any]) -> Text:
    """A value that its type does not hold, and that is shown as NULL in the row."""
    row = [] if value["key"] is None else [Text(_cut(value["key"]), "dim")]
    return _headed("REJECTED", [schema.table.name], [_pair(value["column"], value["text"], key=False), *row])


def pretty_drop(schema: ReplicatedTableSchema) -> Text:
    """What was shown of the table is void: its rows come anew."""
    return _headed("DROP", [schema.table.name], [])


def pretty_value(value: object) -> Text:
    """A value as one would write it in SQL, cut where it is long."""
    if value is UNCHANGED:
        return Text("(unchanged)", "dim italic")
    if value is None:
        return Text("NULL", "dim")
    told = json_value(value)
    if isinstance(told, bool):
        return Text(str(told).lower(), "cyan")
    if isinstance(told, str) and isinstance(value, str | bytes):
        return Text(f"'{_cut(told)}'")
    return Text(_cut(_plain(told)), "cyan")


def _plain(told: object) -> str:
    if isinstance(told, list):
        return "[" + ", ".join(_plain(item) for item in told) + "]"
    if isinstance(told, Mapping):
        return "{" + ", ".join(f"{name}: {_plain(item)}" for name, item in told.items()) + "}"
    return "NULL" if told is None else str(told)


def _cut(text: str) -> str:
    shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return _printable(shown)


def _printable(text: str) -> str:
    return escape_unprintable(text)


def _headed(word: str, names: Iterable[TableName], parts: Iterable[Text]) -> Text:
    tables = _printable(", ".join(str(name) for name in names))
    head = Text.assemble(_INDENT, (f"{word:<8}", _STYLES[word]), " ", (tables, "bold"))
    body = list(parts)
    return Text("  ").join([head, *body]) if body else head


def _change(event: Insert | Update | Delete) -> Iterator[Text]:
    if isinstance(event, Insert):
        yield from _values(event.schema, event.row)
    elif isinstance(event, Delete):
        yield from _values(event.schema, event.old)
    else:
        yield from _update(event)


def _values(schema: ReplicatedTableSchema, row: Row) -> Iterator[Text]:
    keys = {column.name for column in _key(schema)}
    for name in sorted(row, key=lambda name: name not in keys):
        yield _pair(name, row[name], key=name in keys)


def _update(event: Update) -> Iterator[Text]:
    """The key, then what changed; where Postgres does not send the old row, all that is sent of the new one."""
    old = event.old or {}
    keys = [column.name for column in _key(event.schema) if column.name in event.row]
    whole = len(old) == len(event.row)
    for name in [*keys, *(name for name in event.row if name not in keys)]:
        new, before = event.row[name], old.get(name, UNCHANGED)
        # Without the old row nobody knows whether it changed; a TOASTed value that was not sent did not.
        if before is not UNCHANGED and before != new and new is not UNCHANGED:
            arrow = Text.assemble(pretty_value(before), (" → ", "bold yellow"), pretty_value(new))
            yield Text.assemble((_printable(name), _name_style(name in keys)), "=", arrow)
        elif name in keys or not whole:
            yield _pair(name, new, key=name in keys)


def _key(schema: ReplicatedTableSchema) -> tuple[Column, ...]:
    """What tells rows apart: the primary key, else the replica identity if it is not the whole row."""
    key = tuple(column for column in schema.table.key if column in schema.mask)
    identity = schema.identity
    return key or (identity if len(identity) < len(schema.columns) else ())


def _pair(name: str, value: object, *, key: bool) -> Text:
    return Text.assemble((_printable(name), _name_style(key)), "=", pretty_value(value))


def _name_style(key: bool) -> str:
    return "bold" if key else "blue"


def _truncate(event: Truncate) -> Text:
    options = [option.name for option in TruncateOptions if option in event.options and option.name]
    told = [Text(option.lower().replace("_", " "), "dim") for option in options]
    return _headed("TRUNCATE", [schema.table.name for schema in event.schemas], told)


def _alterations(event: Relation) -> Iterator[Text]:
    if event.old is None:
        yield Text(f"is new: {_printable(_described(event.new))}")
        return
    change = schema_change(event.old, event.new)
    if change.table_renamed:
        yield Text(f"was {_printable(str(event.old.table.name))}")
    yield from _columns(change)
    if change.key_changed:
        names = ", ".join(column.name for column in event.new.identity)
        yield Text(f"replica identity ({_printable(names)})")


def _described(schema: ReplicatedTableSchema) -> str:
    return ", ".join(f"{column.name} {type_text(column)}" for column in schema.columns)


def _columns(change: SchemaChange) -> Iterator[Text]:
    for sign, style, columns in (
        ("+", "green", (*change.added, *change.shown)),
        ("-", "red", (*change.dropped, *change.hidden)),
    ):
        for column in columns:
            yield Text(f"{sign}{_printable(column.name)} {type_text(column)}", style)
    for old, new in change.renamed:
        yield Text(f"{_printable(old.name)} → {_printable(new.name)}", "yellow")
    for old, new in change.retyped:
        yield Text(f"{_printable(new.name)} {type_text(old)} → {type_text(new)}", "yellow")
