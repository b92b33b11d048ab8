"""Schemas, masks, states and the bounds of copies as JSON text, for stores that keep text.

The names in the text are chosen here, not taken from the classes, so that renaming a field does not orphan what is
stored. `FORMAT` stands in every schema; a text of a later format is refused, never guessed at. All of it is ASCII: what
a database might refuse in text (NUL, lone surrogates) travels as an escape.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from ..errors import RetryPolicy, StoreCorrupt, StoreVersionError
from ..lsn import Lsn
from ..schema import Column, PgType, ReplicaIdentity, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema
from ..schema_policy import Target
from ..table_state import State, TableState
from .records import CopyBounds, Heartbeat

__all__ = [
    "FORMAT",
    "decode_bounds",
    "decode_heartbeat",
    "decode_mask",
    "decode_ranges",
    "decode_schema",
    "decode_state",
    "decode_target",
    "encode_bounds",
    "encode_heartbeat",
    "encode_mask",
    "encode_ranges",
    "encode_schema",
    "encode_state_detail",
]

FORMAT = 1


def encode_schema(schema: ReplicatedTableSchema, target: Target | None = None) -> str:
    """With what the destination makes of it, if that is another."""
    value = _schema(schema)
    if target is not None:
        value["target"] = {"schema": _schema(target.schema), "sources": sorted(target.sources.items())}
    return _text(value)


def decode_schema(text: str) -> ReplicatedTableSchema:
    """Raises StoreVersionError for a later format, StoreCorrupt for what is none."""
    value = _parsed(text)
    try:
        return _to_schema(value)
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt("schema", error) from error


def decode_target(text: str) -> Target | None:
    """What stands beside a schema; None if there is nothing."""
    try:
        value = _parsed(text).get("target")
        return None if value is None else Target(_to_schema(value["schema"]), dict(value["sources"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _corrupt("target", error) from error


def encode_mask(mask: ReplicationMask) -> str:
    return _text(sorted(mask.attnums))


def decode_mask(text: str) -> ReplicationMask:
    try:
        return ReplicationMask(frozenset(_parsed(text)))
    except TypeError as error:
        raise _corrupt("replication mask", error) from error


def encode_state_detail(state: TableState) -> str:
    """What a state carries besides its name."""
    detail = {
        "lsn": None if state.lsn is None else str(state.lsn),
        "reason": state.reason,
        "solution": state.solution,
        "retry_policy": None if state.retry_policy is None else state.retry_policy.value,
    }
    return _text({key: value for key, value in detail.items() if value is not None})


def decode_state(name: str, detail: str) -> TableState:
    value = _parsed(detail)
    try:
        return TableState(
            State(name),
            lsn=Lsn.parse(value["lsn"]) if "lsn" in value else None,
            reason=value.get("reason"),
            solution=value.get("solution"),
            retry_policy=RetryPolicy(value["retry_policy"]) if "retry_policy" in value else None,
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise _corrupt("table state", error) from error


def encode_heartbeat(heartbeat: Heartbeat) -> str:
    return _text(
        {
            "written_at": heartbeat.written_at.isoformat(),
            "host": heartbeat.host,
            "pid": heartbeat.pid,
            "state": heartbeat.state,
            "receiver": heartbeat.receiver,
            "receiver_silent_s": heartbeat.receiver_silent_s,
            "applied": str(heartbeat.applied),
            "problem": heartbeat.problem,
            "hint": heartbeat.hint,
            "receiver_pid": heartbeat.receiver_pid,
        }
    )


def decode_heartbeat(text: str) -> Heartbeat:
    value = _parsed(text)
    try:
        return Heartbeat(
            **{
                **value,
                "written_at": datetime.fromisoformat(value["written_at"]),
                "applied": Lsn.parse(value["applied"]),
            }
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt("heartbeat", error) from error


def encode_bounds(bounds: CopyBounds | None) -> str:
    return _text(_bounds(bounds))


def decode_bounds(text: str) -> CopyBounds | None:
    try:
        return _to_bounds(_parsed(text))
    except (KeyError, TypeError) as error:
        raise _corrupt("range of a copy", error) from error


def encode_ranges(ranges: tuple[CopyBounds | None, ...]) -> str:
    return _text([_bounds(bounds) for bounds in ranges])


def decode_ranges(text: str) -> tuple[CopyBounds | None, ...]:
    try:
        return tuple(_to_bounds(value) for value in _parsed(text))
    except (KeyError, TypeError) as error:
        raise _corrupt("plan of a copy", error) from error


def _schema(schema: ReplicatedTableSchema) -> dict[str, Any]:
    table = schema.table
    return {
        "format": FORMAT,
        "id": table.id,
        "schema": table.name.schema,
        "name": table.name.name,
        "columns": [_column(column) for column in table.columns],
        "replica_identity": table.replica_identity.value,
        "identity_attnums": list(table.identity_attnums),
        "published_attnums": sorted(schema.mask.attnums),
        "row_filter": schema.row_filter,
        **_given("entries", list(schema.entries)),
        **_given("leaf_files", [list(leaf) for leaf in schema.leaf_files]),
        **_given("listed", schema.listed or None),
        **_given("comment", table.comment),
        **_given("leaves", list(table.leaves)),
        **_given("natts", table.natts or None),
        **_given("storage", table.storage or None),
    }


def _to_schema(value: dict[str, Any]) -> ReplicatedTableSchema:
    if value["format"] > FORMAT:
        msg = f"a stored schema has format {value['format']}, this version reads up to {FORMAT}"
        raise StoreVersionError(msg)
    table = TableSchema(
        id=value["id"],
        name=TableName(value["schema"], value["name"]),
        columns=tuple(_to_column(column) for column in value["columns"]),
        replica_identity=ReplicaIdentity(value["replica_identity"]),
        identity_attnums=tuple(value["identity_attnums"]),
        comment=value.get("comment"),
        leaves=tuple(value.get("leaves", ())),
        natts=value.get("natts", 0),
        storage=value.get("storage", 0),
    )
    mask = ReplicationMask(frozenset(value["published_attnums"]))
    leaf_files = tuple((oid, number) for oid, number in value.get("leaf_files", ()))
    entries, listed = tuple(value.get("entries", ())), value.get("listed", False)
    return ReplicatedTableSchema(table, mask, value["row_filter"], entries, leaf_files, listed)


def _bounds(bounds: CopyBounds | None) -> dict[str, Any] | None:
    if bounds is None:
        return None
    return {"column": bounds.column, "type": bounds.type, "lower": bounds.lower, "upper": bounds.upper}


def _to_bounds(value: dict[str, Any] | None) -> CopyBounds | None:
    if value is None:
        return None
    return CopyBounds(value["column"], value["type"], value["lower"], value["upper"])


def _column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "attnum": column.attnum,
        "type": _type(column.type),
        "typmod": column.typmod,
        "nullable": column.nullable,
        "default": column.default,
        "key_position": column.key_position,
        "generated": column.generated,
        **_given("comment", column.comment),
        **_given("missing", column.missing),
    }


def _to_column(value: dict[str, Any]) -> Column:
    return Column(
        name=value["name"],
        attnum=value["attnum"],
        type=_to_type(value["type"]),
        typmod=value["typmod"],
        nullable=value["nullable"],
        default=value["default"],
        key_position=value["key_position"],
        generated=value["generated"],
        comment=value.get("comment"),
        missing=value.get("missing"),
    )


def _given(key: str, value: object) -> dict[str, Any]:
    # Left out where there is none: texts from before it was kept have no such key.
    return {} if value is None or value == [] else {key: value}


def _type(pg_type: PgType) -> dict[str, Any]:
    return {
        "oid": pg_type.oid,
        "name": pg_type.name,
        "schema": pg_type.schema,
        "kind": pg_type.kind,
        "element": None if pg_type.element is None else _type(pg_type.element),
        "base": None if pg_type.base is None else _type(pg_type.base),
        "base_typmod": pg_type.base_typmod,
        "delimiter": pg_type.delimiter,
        **_given("members", list(pg_type.members)),
        **_given("as_text", pg_type.as_text or None),
    }


def _to_type(value: dict[str, Any]) -> PgType:
    return PgType(
        oid=value["oid"],
        name=value["name"],
        schema=value["schema"],
        kind=value["kind"],
        element=None if value["element"] is None else _to_type(value["element"]),
        base=None if value["base"] is None else _to_type(value["base"]),
        base_typmod=value["base_typmod"],
        delimiter=value["delimiter"],
        members=tuple(value.get("members", ())),
        as_text=value.get("as_text", False),
    )


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _corrupt("text", error) from error


def _corrupt(what: str, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(f"a stored {what} cannot be read", detail=f"{type(error).__name__}: {error}")
