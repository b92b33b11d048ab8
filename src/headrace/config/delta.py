"""Settings of the destination `delta`: tables of Delta Lake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from .form import SPARK_NAME
from .json_as import JsonAs
from .section import Section
from .table_destination import TableDestinationConfig

__all__ = ["DeltaConfig", "DeltaMaintenanceConfig"]


class DeltaMaintenanceConfig(Section):
    """Keeping the tables quick to read: merging small files, removing files that no version names any more."""

    enabled: bool = Field(default=True, description="Whether to do it at all. Default true.")
    interval_s: float = Field(default=60, gt=0, description="Seconds between two looks at the tables. Default 60.")
    small_files: int = Field(
        default=30,
        ge=2,
        description="As many small files are merged into one. Default 30: half a minute of one-second batches.",
    )
    target_file_bytes: int = Field(
        default=128 << 20, ge=1 << 20, description="The size of a file that is merged no more. Default 128 MiB."
    )
    deleted_ratio: float = Field(
        default=0.3,
        gt=0,
        le=1,
        description="A file of which this share of rows is deleted is written anew. Default 0.3.",
    )
    retention_s: float = Field(
        default=2 * 86_400,
        ge=0,
        description="Seconds for which older versions of a table can be read: files that only they name are removed "
        "after that, as VACUUM does. Default two days; less endangers long queries. Tables that are there already keep "
        "what they were made with, as delta.deletedFileRetentionDuration.",
    )
    search_interval_s: float = Field(
        default=6 * 3600,
        gt=0,
        description="Seconds between two searches for such files: a search lists the whole table. Default six hours.",
    )


class DeltaConfig(TableDestinationConfig):
    """Delta Lake tables, with deletion vectors and columns mapped by name."""

    warehouse: str = Field(
        min_length=1,
        description="Where the tables are, each in the directory namespace/table: a directory, or a URI such as "
        "s3a://bucket/path that the Spark session can reach.",
    )
    catalog: Annotated[str | None, SPARK_NAME] = Field(
        default=None,
        description="A catalog of the Spark session in which each table is registered too, as namespace.table: "
        "spark_catalog, for one. Default none: tables are known by their paths.",
    )
    properties: dict[str, str] = Field(
        default={}, description="Table properties for new tables, as Delta names them. Default none."
    )
    commit_retries: int = Field(
        default=10, ge=0, description="How often a commit that met another writer's is tried again. Default 10."
    )
    maintenance: DeltaMaintenanceConfig = Field(
        default=DeltaMaintenanceConfig(), description="Keeping the tables quick to read."
    )

    @property
    def json_as(self) -> JsonAs:
        """Json and jsonb are text, exactly as Postgres has it."""
        return JsonAs.STRING

    def directories(self) -> Mapping[str, str]:
        return {"warehouse": self.warehouse}

    def place(self) -> tuple[str, str]:
        """The warehouse: its tables tell which table of a pipeline they are, not of which destination."""
        is_uri = "://" in self.warehouse
        return "warehouse", self.warehouse.rstrip("/") if is_uri else str(Path(self.warehouse).resolve())
