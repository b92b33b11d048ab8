"""Settings of batches, and of the memory that they and everything else may take."""

from __future__ import annotations

from pydantic import Field, model_validator

from .section import Section
from .spool import MEBIBYTE

__all__ = ["BatchConfig", "MemoryBackpressureConfig"]


class BatchConfig(Section):
    """How much is written to the destination at once. A batch ends at a commit, whatever these say."""

    max_fill_ms: int = Field(
        default=1000,
        ge=1,
        description="Milliseconds a batch waits for more changes. Default 1000: about what a merge into a lakehouse "
        "table costs anyway; lower it for destinations that take small writes gladly.",
    )
    max_bytes: int = Field(
        default=64 * MEBIBYTE,
        ge=64 * 1024,
        description="Bytes of raw WAL at which a batch is full. Default 64 MiB: a batch is whole spool segments on "
        "disk, not memory, and two segments of the default size keep two cores busy.",
    )
    memory_budget_ratio: float = Field(
        default=0.2,
        gt=0,
        le=1,
        description="Share of all memory that the batches under way may take together, whatever max_bytes says. "
        "Default 0.2: decoded and folded rows take several times their raw bytes.",
    )


class MemoryBackpressureConfig(Section):
    """When reading pauses for want of memory. Nothing is dropped: changes wait in the spool or on the source."""

    activate_threshold: float = Field(
        default=0.85,
        gt=0,
        le=1,
        description="Share of all memory in use by this process and its children at which reading pauses. Default "
        "0.85: leaves room for what is already under way.",
    )
    resume_threshold: float = Field(
        default=0.75,
        gt=0,
        lt=1,
        description="Share below which reading goes on. Default 0.75: a tenth below the other, so that the two do not "
        "alternate.",
    )

    @model_validator(mode="after")
    def _gap(self) -> MemoryBackpressureConfig:
        if self.resume_threshold >= self.activate_threshold:
            msg = "resume_threshold must be below activate_threshold"
            raise ValueError(msg)
        return self
