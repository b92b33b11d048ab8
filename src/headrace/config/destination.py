"""Settings of a destination: its kind, and what that kind knows."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from .iceberg import IcebergConfig
from .section import Section

__all__ = ["DESTINATION_SETTINGS", "DestinationConfig", "MemoryConfig", "NullConfig", "StdoutConfig"]


class StdoutConfig(Section):
    """Every event as a line of JSON on standard output."""


class MemoryConfig(Section):
    """Rows in this process's memory, for tests and examples."""


class NullConfig(Section):
    """Nothing is kept: for measurements."""


DESTINATION_SETTINGS: dict[str, type[Section]] = {
    "iceberg": IcebergConfig,
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
        description='Which destination: iceberg, stdout, memory or null; the last in quotes (`kind: "null"`), as YAML '
        "takes the bare word for none.",
    )

    @property
    def options(self) -> dict[str, Any]:
        """The destination's own settings, unchecked: `load_pipeline_config` checks those of the kinds it knows."""
        return dict(self.model_extra or {})

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        # The names only: which of a destination's settings are secrets is known to the destination alone.
        return [("kind", self.kind), ("settings", sorted(self.options))]
