"""Settings of a destination: its kind, and what that kind knows."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field

from .delta import DeltaConfig
from .duckdb import DuckDBConfig, DuckLakeConfig
from .iceberg import IcebergConfig
from .parquet import ParquetConfig
from .section import Section

__all__ = ["DESTINATION_SETTINGS", "DestinationConfig", "MemoryConfig", "NullConfig", "StdoutConfig", "StdoutFormat"]


class StdoutFormat(StrEnum):
    """How a line looks: for programs, for people, or for whoever is there to read it."""

    JSON = "json"
    PRETTY = "pretty"
    AUTO = "auto"


class StdoutConfig(Section):
    """Every event as a line on standard output."""

    format: StdoutFormat = Field(
        default=StdoutFormat.AUTO,
        description="`json`, one object per line; `pretty`, a line for people, in colours where there is a terminal; "
        "`auto`, pretty on a terminal and json elsewhere.",
    )


class MemoryConfig(Section):
    """Rows in this process's memory, for tests and examples."""


class NullConfig(Section):
    """Nothing is kept: for measurements."""


DESTINATION_SETTINGS: dict[str, type[Section]] = {
    "iceberg": IcebergConfig,
    "delta": DeltaConfig,
    "duckdb": DuckDBConfig,
    "ducklake": DuckLakeConfig,
    "parquet": ParquetConfig,
    "stdout": StdoutConfig,
    "memory": MemoryConfig,
    "null": NullConfig,
}
"""The settings beside `kind`, of the destinations that are built in."""


class DestinationConfig(Section):
    """Where rows and events go. Settings beside `kind` are the destination's own: see the section of its kind."""

    model_config = ConfigDict(extra="allow")

    kind: str = Field(
        min_length=1,
        description="Which destination: iceberg, delta, duckdb, ducklake, parquet, stdout, memory or null; the last in "
        'quotes (`kind: "null"`), as YAML takes the bare word for none. Or one of yours: `module:Class`, or the name '
        "that its package gives it.",
    )

    @property
    def options(self) -> dict[str, Any]:
        """The destination's own settings, unchecked: `load_pipeline_config` checks them."""
        return dict(self.model_extra or {})

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        # The names only: which of a destination's settings are secrets is known to the destination alone.
        return [("kind", self.kind), ("settings", sorted(self.options))]
