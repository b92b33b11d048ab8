"""Where a table lies: in the directory of its namespace, which is one level whatever its parts.

So no table lies within another's directory, where Delta's VACUUM would take its files for leftovers.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

__all__ = ["is_local", "table_location", "table_name", "warehouse_location"]

_PLAIN = frozenset("_-")


def warehouse_location(warehouse: str) -> str:
    """A local directory as its path, anything else as the URI it is."""
    parsed = urlparse(warehouse)
    if is_local(warehouse):
        return str(Path(parsed.path if parsed.scheme else warehouse).resolve())
    return warehouse.rstrip("/")


def is_local(warehouse: str) -> bool:
    return urlparse(warehouse).scheme in ("", "file")


def table_location(warehouse: str, name: tuple[str, ...]) -> str:
    return f"{warehouse}/{'.'.join(_escaped(part) for part in name[:-1])}/{_escaped(name[-1])}"


def table_name(namespace: str, table: str) -> tuple[str, ...]:
    """From two directories."""
    return (*(_plain(part) for part in namespace.split(".")), _plain(table))


def _escaped(part: str) -> str:
    """Letters and digits of any script stay; what a URI or a file system may take for its own does not.

    Not by percent signs: readers that go by URIs decode them, and look for a directory that is not there.
    """
    kept = "".join(sign if sign.isalnum() or sign in _PLAIN else _encoded(sign) for sign in part)
    # A leading underscore hides a directory from Spark and Delta.
    return f"~5F{kept[1:]}" if kept.startswith("_") else kept


def _encoded(sign: str) -> str:
    return "".join(f"~{byte:02X}" for byte in sign.encode())


def _plain(escaped: str) -> str:
    return unquote(escaped.replace("~", "%"))
