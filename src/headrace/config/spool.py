"""Settings of the spool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["MEBIBYTE", "SpoolConfig"]

MEBIBYTE = 1024 * 1024


class SpoolConfig(BaseModel):
    """Where the raw WAL lies between Postgres and Spark, and how it is cut and kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str = Field(
        description="A local directory, or any fsspec URI (s3://bucket/prefix, gs://…, abfs://…). "
        "Executors must be able to read it."
    )
    storage_options: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="Passed to fsspec for a URI (endpoint, credentials). Not printed: it may hold secrets.",
    )
    staging: Path | None = Field(
        default=None,
        description="For a URI: the local directory for what is not yet published, of this spool alone. By default a "
        "temporary one; name one on a real disk if transactions are large and the temporary directory is in memory.",
    )
    durable: bool = Field(
        default=True,
        description="Whether a published segment counts as safe, so that Postgres may forget its WAL. "
        "If false, WAL stays on the source until every table has applied it.",
    )
    segment_bytes: int = Field(
        default=32 * MEBIBYTE,
        ge=64 * 1024,
        description="Bytes at which a segment is cut at the next commit. 32 MiB is one Spark task of about a second.",
    )
    segment_age_ms: int = Field(
        default=250,
        ge=1,
        description="Milliseconds after which a smaller segment is published all the same: what the spool adds to the "
        "age of a change, against a file per quarter of a second.",
    )
    quota_bytes: int = Field(
        default=64 * 1024 * MEBIBYTE,
        ge=MEBIBYTE,
        description="Bytes of unapplied segments at which the receiver stops reading; WAL then waits on the source. "
        "It goes on as soon as segments were applied and released.",
    )
    keep_seconds: float = Field(
        default=0,
        ge=0,
        description="Seconds an applied segment is kept for replays. 0 removes it as soon as every table applied it.",
    )
