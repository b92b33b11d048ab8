"""Verifies that messages about DDL were written by the event triggers: anybody may emit logical messages.

The triggers sign what they emit with a key that pipelines read at the source. A message that is not authentic is
ignored, and a schema change is seen by the next Relation message, as without event triggers.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
import structlog

from ...schema import quote_identifier
from ..translation import translated_errors
from .install import installed_version
from .script import DDL_SCHEMA, SIGNED_SINCE

if TYPE_CHECKING:
    from ...pgoutput.columnar import Emitted  # commands that only look at a source need no Arrow

__all__ = ["MessageKey", "MessageVerifier", "is_authentic", "key_grant", "read_message_key"]

Connection = psycopg.Connection[Any]

_KEY_BYTES = 64
_INNER_PAD = 0x36
_MAC = re.compile(rb', "mac" : "([0-9a-f]{64})"\}')
_MAC_BYTES = len(', "mac" : ""}') + 64
_REREAD_S = 30.0

_MAY_READ = f"""
SELECT current_user::text,
       pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = '{DDL_SCHEMA}' AND p.proname = 'message_key' AND p.pronargs = 0
"""
_READ = f"""
SELECT {DDL_SCHEMA}.message_key(),
       (SELECT oid::pg_catalog.int8 FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
"""

_log = structlog.get_logger("headrace.schema")


@dataclass(frozen=True, slots=True)
class MessageKey:
    """Hold the HMAC key with which the event triggers of one database sign their messages."""

    secret: bytes = field(repr=False)
    database: int


def key_grant(connection: Connection) -> str | None:
    """Return the SQL that lets the session's role read the key; None if it may, or if there is none."""
    version = installed_version(connection)
    if version is None or version < SIGNED_SINCE:
        return None
    with translated_errors("cannot see who may read the key of messages about DDL"):
        row = connection.execute(_MAY_READ).fetchone()
    if row is None or row[1]:
        return None
    role = quote_identifier(row[0])
    return (
        f"GRANT USAGE ON SCHEMA {DDL_SCHEMA} TO {role}; GRANT EXECUTE ON FUNCTION {DDL_SCHEMA}.message_key() TO {role}"
    )


def read_message_key(connection: Connection) -> MessageKey | None:
    """Read the key; None if no version that signs is installed, or the role may not read it. Raises SourceError."""
    version = installed_version(connection)
    # Only what belongs to a trusted role is ever called.
    if version is None or version < SIGNED_SINCE or key_grant(connection) is not None:
        return None
    with translated_errors("cannot read the key of messages about DDL"):
        row = connection.execute(_READ).fetchone()
    if row is None or row[0] is None or len(row[0]) != 2 * _KEY_BYTES:
        return None
    return MessageKey(bytes(byte ^ _INNER_PAD for byte in row[0][:_KEY_BYTES]), row[1])


def is_authentic(key: MessageKey, emitted: Emitted) -> bool:
    """Tell whether the event triggers of this database wrote the message, in the transaction that it came in."""
    content = emitted.message.content
    found = _MAC.fullmatch(content[-_MAC_BYTES:])
    if found is None:
        return False
    signed = content[:-_MAC_BYTES] + b"}"
    mac = hmac.new(key.secret, emitted.message.prefix.encode() + b"\n" + signed, hashlib.sha256)
    if not hmac.compare_digest(mac.hexdigest().encode(), found[1]):
        return False
    document = json.loads(signed)
    # The stream has the lower half of a transaction's id.
    return bool(document["database"] == key.database and document["transaction"] & 0xFFFFFFFF == emitted.xid)


class MessageVerifier:
    """Verifies messages with the key at the source, which is read again, at times, if one does not fit.

    Used by several threads.
    """

    def __init__(self, read_key: Callable[[], MessageKey | None]) -> None:
        """`read_key` may raise SourceError: a message is not dismissed because the source cannot be asked."""
        self._read_key = read_key
        self._lock = threading.Lock()
        self._key: MessageKey | None = None
        self._read_at: float | None = None
        self._warned: set[int] = set()

    def accepts(self, table_id: int, table: str, emitted: Emitted) -> bool:
        """Tell whether a message about a table is authentic; if not, say so once per table in the log."""
        with self._lock:
            if self._key is not None and is_authentic(self._key, emitted):
                return True
            if self._read_at is None or time.monotonic() - self._read_at >= _REREAD_S:
                self._key, self._read_at = self._read_key(), time.monotonic()
                if self._key is not None and is_authentic(self._key, emitted):
                    return True
            known, has_key = table_id in self._warned, self._key is not None
            self._warned.add(table_id)
        if not known:
            why = "another than the event triggers wrote it" if has_key else "there is no key to verify it with"
            hint = "the change is seen with the next row of the table; what to do says: headrace check PIPELINE.YAML"
            _log.warning("a message about a schema change is ignored", table=table, reason=why, hint=hint)
        return False
