"""Settings of the spool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from .section import Section

__all__ = ["MEBIBYTE", "SpoolConfig", "SpoolSection"]

MEBIBYTE = 1024 * 1024


class SpoolSection(Section):
    """Where the raw WAL lies between Postgres and Spark, and how it is cut and kept."""

    uri: str | None = Field(
        default=None,
        min_length=1,
        description="A local directory, or any fsspec URI (s3://bucket/prefix, gs://…, abfs://…). "
        "Executors must be able to read it. Default none: the directory `pipeline-<id>/spool` in data_dir.",
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
    group: str | None = Field(
        default=None,
        min_length=1,
        description="For a local directory: a group, by name or number, whose members may read the spool: executors or "
        "readers under another user. Default none: only the user that runs the pipeline may, whatever the umask.",
    )
    durable: bool = Field(
        default=True,
        description="Whether a published segment counts as safe, so that Postgres may forget its WAL. "
        "If false, WAL stays on the source until every table has applied it.",
    )
    segment_bytes: int = Field(
        default=32 * MEBIBYTE,
        ge=64 * 1024,
        le=1024 * MEBIBYTE,
        description="Bytes at which a segment is cut at the next commit. 32 MiB is one Spark task of about a second. "
        "At most 1 GiB: a segment, with the message that completes it, must stay below 2 GiB.",
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
        default=60,
        ge=0,
        description="Seconds an applied segment is kept; 0 removes it as soon as every table applied it. Default 60: "
        "a table whose copy has just begun finds what was received meanwhile.",
    )


class SpoolConfig(SpoolSection):
    """A spool whose place is known: what opens one."""

    uri: str = Field(min_length=1, description="As above, and it must be given.")
