"""Tables in a catalog of Spark's, beside their place in the warehouse: others find them by name."""

from __future__ import annotations

from typing import Any

from .java import delta_errors

__all__ = ["Registration"]


class Registration:
    """Adds and removes entries. Never the tables themselves: to the catalog they are external."""

    def __init__(self, spark: Any, catalog: str) -> None:
        self._spark, self._catalog = spark, catalog

    def add(self, name: tuple[str, ...], location: str) -> None:
        namespace = self._quoted(name[:-1])
        with delta_errors(f"register table {'.'.join(name)} in catalog {self._catalog}"):
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
            quoted = location.replace("\\", "\\\\").replace("'", "\\'")
            self._spark.sql(f"CREATE TABLE IF NOT EXISTS {self._quoted(name)} USING delta LOCATION '{quoted}'")

    def remove(self, name: tuple[str, ...]) -> None:
        with delta_errors(f"remove table {'.'.join(name)} from catalog {self._catalog}"):
            self._spark.sql(f"DROP TABLE IF EXISTS {self._quoted(name)}")

    def _quoted(self, name: tuple[str, ...]) -> str:
        return ".".join(f"`{part.replace('`', '``')}`" for part in (self._catalog, *name))
