"""Where a new table lies: in a directory of its own, which no other table has or had, and that every reader finds."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from py4j.protocol import Py4JError, Py4JJavaError

from ...errors import DestinationRejected

__all__ = ["own_location"]

# In a URI they have a meaning, and readers differ in whether they are escaped; a slash makes one table lie in another.
# Control characters and line separators are stripped by some readers, and taken for the end of a line by others.
_UNSAFE = re.compile(r"[%?#/\\:*\x00-\x1f\x7f-\x9f\u2028\u2029]|^\.+$")
# Whatever comes after them is lost to a reader that goes by URIs: all files would be one.
_CUTTING = re.compile(r"[?#\t\r\n]")
_DIRECTORIES = ("metadata", "data")


def own_location(table: Any, name: tuple[str, ...]) -> str:
    """The location that the catalog gives to a Java table that it did not make yet, or one beside it.

    A table that was renamed stays where it is. One that takes its name must not lie there too: what the one has, the
    other would take for orphan files.
    """
    location = str(table.location())
    is_safe = not any(_UNSAFE.search(part) for part in name)
    if not is_safe or any(_has_files(table.io(), f"{location}/{part}/") for part in _DIRECTORIES):
        location = f"{_above(location, name)}{_UNSAFE.sub('_', name[-1])}-{uuid.uuid4().hex[:12]}"
    if _CUTTING.search(location):
        msg = f"the catalog puts table {'.'.join(name)} at {location!r}, which readers take for another place"
        hint = "set destination.namespace or destination.warehouse so that neither # nor ? is in it"
        raise DestinationRejected(msg, hint=hint)
    return location


def _above(location: str, name: tuple[str, ...]) -> str:
    """The directory of the table's namespace, with a slash; safe itself, where the catalog made it of the name."""
    as_named = "/".join(name)
    if location.endswith(f"/{as_named}"):
        spaces = [_UNSAFE.sub("_", part) for part in name[:-1]]
        return "".join([location.removesuffix(as_named), *(f"{space}/" for space in spaces)])
    return location.removesuffix(name[-1]) if location.endswith(name[-1]) else f"{location.rpartition('/')[0]}/"


def _has_files(io: Any, prefix: str) -> bool:
    place = urlparse(prefix)
    if place.scheme in ("", "file"):
        # Not by listing: most tables are new, and each Java exception costs hundreds of calls to tell of itself.
        return any(path.is_file() for path in Path(place.path).rglob("*"))
    try:
        return bool(io.listPrefix(prefix).iterator().hasNext())
    except Py4JJavaError as error:
        if "FileNotFoundException" in str(error.java_exception):
            return False
        raise
    except Py4JError:
        # An io without listing: nor are orphan files looked for there.
        return False
