"""DuckDB files, databases at MotherDuck, and DuckLake. Needs the extra `duckdb` or `ducklake`."""

from __future__ import annotations

from .destination import DuckDBDestination

__all__ = ["DuckDBDestination"]
