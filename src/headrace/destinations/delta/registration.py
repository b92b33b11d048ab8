"""Tables in a catalog of Spark's, beside their place in the warehouse: others find them by name."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlparse

import structlog

from ...errors import DestinationError, DestinationRejected
from .java import delta_errors

__all__ = ["Registration"]

_log = structlog.get_logger("headrace.destinations.delta")


class Registration:
    """Adds and removes entries. Never the tables themselves: to the catalog they are external."""

    def __init__(self, spark: Any, catalog: str) -> None:
        self._spark, self._catalog = spark, catalog
        self._known: set[tuple[str, ...]] = set()

    def ensure(self, name: tuple[str, ...], location: str) -> None:
        """The table has its entry: one that could not be made when the table was, or when it was renamed, is made now.

        Raises:
            DestinationRejected: the catalog does not take the name, or has it for something else.
        """
        if name in self._known:
            return
        with delta_errors(f"register table {'.'.join(name)} in catalog {self._catalog}"):
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._quoted(name[:-1])}")
            quoted = location.replace("\\", "\\\\").replace("'", "\\'")
            self._spark.sql(f"CREATE TABLE IF NOT EXISTS {self._quoted(name)} USING delta LOCATION '{quoted}'")
            found = self._location(name)
        if found is None or _place(found) != _place(location):
            msg = f"catalog {self._catalog} has something else that is called {'.'.join(name)}"
            hint = f"remove its entry, or give the table another name: tables.<table>.name; the table is {location}"
            raise DestinationRejected(msg, detail="a view" if found is None else f"it is {found}", hint=hint)
        self._known.add(name)

    def try_to_add(self, name: tuple[str, ...], location: str) -> None:
        """If it cannot be done now, it is when the table is next opened, and is an error then."""
        try:
            self.ensure(name, location)
        except DestinationError as error:
            _log.warning("a table could not be registered yet", table=".".join(name), error=str(error))

    def remove(self, name: tuple[str, ...]) -> None:
        self._known.discard(name)
        with delta_errors(f"remove table {'.'.join(name)} from catalog {self._catalog}"):
            self._spark.sql(f"DROP TABLE IF EXISTS {self._quoted(name)}")

    def _location(self, name: tuple[str, ...]) -> str | None:
        described = self._spark.sql(f"DESCRIBE TABLE EXTENDED {self._quoted(name)}").collect()
        return next((str(row["data_type"]) for row in described if row["col_name"] == "Location"), None)

    def _quoted(self, name: tuple[str, ...]) -> str:
        return ".".join(f"`{part.replace('`', '``')}`" for part in (self._catalog, *name))


def _place(location: str) -> str:
    """As a path is and as a URI has it."""
    parsed = urlparse(location)
    return f"{parsed.netloc}/{unquote(parsed.path).strip('/')}"
