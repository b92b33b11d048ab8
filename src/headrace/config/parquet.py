"""Settings of the destination `parquet`: a change log in Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import Field

from .section import Section

__all__ = ["ParquetCompression", "ParquetConfig"]


class ParquetCompression(StrEnum):
    """Compressions that Parquet has and everybody reads."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    NONE = "none"


class ParquetConfig(Section):
    """Every change, as it came, in Parquet files; a manifest per commit says which files count."""

    location: str = Field(
        min_length=1,
        description="A directory, or any fsspec URI (s3://bucket/prefix, gs://…, abfs://…, hdfs://…), of this pipeline "
        "alone. Executors must be able to write to it.",
    )
    storage_options: Mapping[str, Any] = Field(
        default={},
        repr=False,
        description="Passed to fsspec for a URI (endpoint, credentials). Not printed: it may hold secrets. Default "
        "none.",
    )
    compression: ParquetCompression = Field(
        default=ParquetCompression.ZSTD, description="How the files are compressed. Default zstd."
    )
    target_file_bytes: int = Field(
        default=128 << 20,
        ge=1 << 20,
        description="Bytes after which a task begins another file. Default 128 MiB. The files of changes are as large "
        "as a batch: raise batch.max_fill_ms for fewer and larger ones.",
    )

    def directories(self) -> Mapping[str, str]:
        """The places it writes to, by the setting that names each."""
        return {"location": self.location}

    def place(self) -> tuple[str, str]:
        """See `TableDestinationConfig.place`."""
        return "location", self.location.rstrip("/") if "://" in self.location else str(Path(self.location).resolve())
