"""Reads what the event triggers at the source say of DDL (`source/install.sql`): logical messages, as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ProtocolError
from ..schema import DDL_PREFIX, PUBLICATION_PREFIX, TableSchema
from .catalog import described_tables

__all__ = [
    "PUBLICATION_PREFIX",
    "DdlMessage",
    "PublicationMessage",
    "emitting_xid",
    "is_ddl_prefix",
    "parse_ddl",
    "parse_publication",
]

_VERSION = 1
_MAX_OID = (1 << 32) - 1
_XIDS = range(3, 1 << 32)
"""The ids of transactions and savepoints that are not Postgres's own."""
_XID = re.compile(rb'\{"version" ?: ?[0-9]{1,9}, ?"xid" ?: ?([0-9]{1,10})[,}]')
"""How a message begins that tells its savepoint: the event trigger writes its fields in this order."""


@dataclass(frozen=True, slots=True)
class DdlMessage:
    """What a command left of one table."""

    tag: str
    """The command's tag, such as ALTER TABLE; of the outermost one if it was made of several."""
    table: TableSchema | None
    """The table after the command; None: it is gone."""
    dropped: bool = False
    rewrite: int = 0
    """Why Postgres rewrote it or, if it is partitioned, one of its leaves: bits of
    `pg_event_trigger_table_rewrite_reason()`, 1 persistence, 2 default, 4 type of a column, 8 access method; 0: it did
    not."""
    plain: bool = False
    """The client's own and only statement was an ALTER TABLE with no USING in it: types were changed by their casts."""
    locked: bool = False
    """Whether the transaction kept others from altering the table, and saw what they had committed before. Else `table`
    may lack what others did, and only what the command itself did may be taken from it."""


@dataclass(frozen=True, slots=True)
class PublicationMessage:
    """A publication was created, altered or dropped. After a RENAME, it is the new name."""

    tag: str
    publication: str


def is_ddl_prefix(prefix: str) -> int | None:
    """The table's OID if this is the prefix of a DDL message, else None."""
    digits = prefix.removeprefix(DDL_PREFIX)
    if digits == prefix or not (digits.isascii() and digits.isdigit()) or int(digits) > _MAX_OID:
        return None
    return int(digits)


def parse_ddl(content: bytes) -> DdlMessage:
    """The content of a message with a DDL prefix. Raises ProtocolError."""
    document = _document(content)
    dropped = _field(document, "dropped", bool, False)
    table = None if dropped else _table(_field(document, "catalog", dict))
    rewrite = _field(document, "rewrite", int)
    plain, locked = _field(document, "plain", bool), _field(document, "locked", bool, False)
    return DdlMessage(_field(document, "tag", str), table, dropped, rewrite, plain, locked)


def emitting_xid(prefix: str, content: bytes) -> int | None:
    """The (sub)transaction that emitted a message, if it is one that says so. Anybody's messages may be asked about."""
    if is_ddl_prefix(prefix) is None and prefix != PUBLICATION_PREFIX:
        return None
    # Not read as JSON: anybody may write a message, of any size, and nested as they like.
    found = _XID.match(content)
    xid = 0 if found is None else int(found[1])
    return xid if xid in _XIDS else None


def parse_publication(content: bytes) -> PublicationMessage:
    """The content of a message with `PUBLICATION_PREFIX`. Raises ProtocolError."""
    document = _document(content)
    return PublicationMessage(_field(document, "tag", str), _field(document, "publication", str))


def _document(content: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise _wrong("it is not JSON in UTF-8") from None
    if not isinstance(document, dict):
        raise _wrong("it is not a JSON object")
    version = _field(document, "version", int)
    if version > _VERSION:
        msg = f"a DDL message has version {version}, this program knows up to {_VERSION}"
        raise ProtocolError(msg, hint="a later version of headrace is installed at the source: run that one here too")
    if version < 1:
        raise _wrong(f"version is {version}")
    return document


def _field(document: Mapping[str, Any], name: str, kind: type, default: object = None) -> Any:
    value = document.get(name, default)
    # To Python, True is an int.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(f"{name} is missing or is no {kind.__name__}")
    return value


def _table(catalog: Mapping[str, Any]) -> TableSchema:
    try:
        tables = list(described_tables(catalog).values())
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        # Only names of fields: a comment or a default may be anything.
        what = f"field {error.args[0]!r}" if isinstance(error, KeyError) else f"a value ({type(error).__name__})"
        raise _wrong(f"its catalog lacks or has a wrong {what}") from None
    if len(tables) != 1:
        raise _wrong(f"its catalog has {len(tables)} tables instead of one")
    return tables[0]


def _wrong(what: str) -> ProtocolError:
    msg = f"a DDL message cannot be read: {what}"
    hint = "somebody else wrote it, or the source has another version: headrace source install PIPELINE.YAML"
    return ProtocolError(msg, hint=hint)
