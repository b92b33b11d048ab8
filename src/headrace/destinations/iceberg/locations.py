"""Where a new table lies: in a directory of its own, which no other table has or had, and that every reader finds."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from py4j.protocol import Py4JError, Py4JJavaError

__all__ = ["own_location"]

# In a URI they have a meaning, and readers differ in whether they are escaped; a slash makes one table lie in another.
_UNSAFE = re.compile(r"[%?#/\\:*]|^\.+$")
_DIRECTORIES = ("metadata", "data")


def own_location(table: Any, name: str) -> str:
    """The location that the catalog gives to a Java table that it did not make yet, or one beside it.

    A table that was renamed stays where it is. One that takes its name must not lie there too: what the one has, the
    other would take for orphan files.
    """
    location = str(table.location())
    if not _UNSAFE.search(name) and not any(_has_files(table.io(), f"{location}/{part}/") for part in _DIRECTORIES):
        return location
    above = location.removesuffix(name) if location.endswith(name) else f"{location.rpartition('/')[0]}/"
    return f"{above}{_UNSAFE.sub('_', name)}-{uuid.uuid4().hex[:12]}"


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
