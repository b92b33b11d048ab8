"""Makes what is logged printable, and keeps secrets out of it. The last look at a log line before it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, MutableMapping
from enum import Enum
from typing import Any

from pydantic import SecretBytes, SecretStr

__all__ = ["HIDDEN", "escape_json", "escape_unprintable", "redact", "redact_text"]

HIDDEN = "***"

# `password_file` and the like name a place, not a secret.
_SECRET_NAME = re.compile(
    r"(passw(or)?d|passphrase|secret|token|credential|private_?key|access_?key|api_?key|scram_\w+_key)(?!.*_file$)",
    re.I,
)
# libpq's and a repr's key=value, JSON's and Python's "key": "value". A bare `password:` begins many a sentence.
_PAIR = re.compile(
    r"""(\b\w*(?:passw(?:or)?d|passphrase|secret|token)\w*(?<!_file)(?:\s*=\s*|["']\s*:\s*))"""
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,;&)}\]]+)""",
    re.I,
)
_URL = re.compile(r"(\b[a-z][a-z0-9+.\-]*://[^/\s:@]*:)[^/\s]*(?=@)", re.I)


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: no secret passes, LSNs and names become text. Runs after exceptions were formatted."""
    for name, value in event.items():
        # structlog's own entries begin with an underscore and are taken out later.
        if not name.startswith("_"):
            event[name] = HIDDEN if _SECRET_NAME.search(name) else printable(value)
    return event


def printable(value: Any) -> Any:
    """The value as JSON types, without secrets."""
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, Enum):
        return printable(value.value)
    if isinstance(value, (SecretStr, SecretBytes)):
        return HIDDEN
    if isinstance(value, Mapping):
        return {
            str(name): HIDDEN if _SECRET_NAME.search(str(name)) else printable(inner) for name, inner in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [printable(inner) for inner in value]
    return redact_text(str(value))


def escape_unprintable(text: str, *, keep_line_breaks: bool = False) -> str:
    """Return a text with characters written as escapes that do not print.

    Names and errors come from the source, whose other users must not be able to steer a terminal, or to write a line of
    their own. Line breaks are kept only for text that is laid out already, with names in it that have none.
    """
    if text.isprintable():
        return text
    kept = "\n" if keep_line_breaks else ""
    return "".join(char if char.isprintable() or char in kept else repr(char)[1:-1] for char in text)


def escape_json(text: str) -> str:
    """Return JSON of the same value with escapes for characters that do not print, such as those that turn text around.

    They occur in strings only, as JSON without line breaks has no others between them.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def redact_text(text: str) -> str:
    """Text without the passwords of connection strings and URLs in it."""
    return _URL.sub(rf"\1{HIDDEN}", _PAIR.sub(rf"\1{HIDDEN}", text))
