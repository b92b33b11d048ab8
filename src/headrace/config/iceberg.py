"""Settings of the Iceberg destination."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlparse

from pydantic import Field, SecretStr, field_validator, model_validator

from .form import SPARK_NAME
from .json_as import JsonAs
from .section import Section
from .table_destination import DestinationTableConfig, SourceTable, TableDestinationConfig

__all__ = [
    "CatalogConfig",
    "CatalogType",
    "IcebergConfig",
    "IcebergTableConfig",
    "MaintenanceConfig",
]


# Locations are URIs that nobody decodes: Java has all of such a path, Python's readers what is before or between.
_CUT = re.compile(r"[#?\t\r\n]")
_CUT_PATH = (
    "must have no #, ?, tab or line end in it: readers of Iceberg tables would look elsewhere; name another place "
    "(a relative path begins at the working directory, which counts too)"
)


class CatalogType(StrEnum):
    """Which catalog keeps the tables' names."""

    SQLITE = "sqlite"
    REST = "rest"
    GLUE = "glue"
    HIVE = "hive"


class CatalogConfig(Section):
    """The catalog: where an Iceberg table's name leads to its current metadata."""

    type: CatalogType = Field(
        default=CatalogType.SQLITE,
        description="A SQLite file, shared by Spark, pyiceberg and others; a REST catalog; AWS Glue; a Hive metastore. "
        "Default sqlite: nothing to set up, for one machine.",
    )
    name: Annotated[str, SPARK_NAME] = Field(
        default="headrace",
        description="The catalog's name in Spark. Default headrace.",
    )
    uri: str | None = Field(
        default=None,
        description="Where the catalog is: the file (sqlite), http(s)://… (rest), thrift://… (hive). Default none: "
        "for sqlite `catalog.db` in a local warehouse.",
    )
    properties: dict[str, str] = Field(
        default={},
        repr=False,
        description="Further properties, as Iceberg names them (`s3.endpoint`, `oauth2-server-uri`, `io-impl`); given "
        "to Spark and to pyiceberg's reader and writer alike. Default none.",
    )
    secrets: dict[str, SecretStr] = Field(
        default={},
        description="Properties that are secrets (`credential`, `token`, `s3.secret-access-key`): as `properties`, but "
        "never shown. Give them by environment: HEADRACE__DESTINATION__CATALOG__SECRETS as a JSON object.",
    )

    @model_validator(mode="after")
    def _uri_of_a_server(self) -> CatalogConfig:
        if self.uri is None and self.type in (CatalogType.REST, CatalogType.HIVE):
            msg = f"uri is missing: say where the {self.type.value} catalog is"
            raise ValueError(msg)
        return self


class MaintenanceConfig(Section):
    """Keeping the tables quick to read: merging small files, forgetting old snapshots, removing what nobody names."""

    enabled: bool = Field(default=True, description="Whether to do it at all. Default true.")
    interval_s: float = Field(
        default=60,
        gt=0,
        description="Seconds between two looks at the tables. Default 60.",
    )
    small_files: int = Field(
        default=30,
        ge=2,
        description="As many small files of one partition are merged into one. Default 30: half a minute of "
        "one-second batches.",
    )
    target_file_bytes: int = Field(
        default=128 << 20,
        ge=1 << 20,
        description="The size of a file that is merged no more. Default 128 MiB.",
    )
    deleted_ratio: float = Field(
        default=0.3,
        gt=0,
        le=1,
        description="A file of which this share of rows is deleted is written anew. Default 0.3.",
    )
    snapshot_age_s: float = Field(
        default=86_400,
        ge=0,
        description="Seconds for which old snapshots can be read. Default a day.",
    )
    snapshots_kept: int = Field(
        default=100, ge=1, description="Snapshots kept at most, however young they are. Default 100."
    )
    retention_s: float = Field(
        default=6 * 3600,
        ge=0,
        description="Seconds for which files that only expired snapshots refer to are kept at least, so that scans "
        "that were planned before can finish. Default six hours.",
    )
    retention_bytes: int | None = Field(
        default=100 << 30,
        ge=0,
        description="Bytes of such files that are kept at most for one table: beyond it the oldest are deleted before "
        "their time, with a warning. None: no limit. Default 100 GiB.",
    )
    orphan_age_s: float = Field(
        default=3 * 86_400,
        ge=0,
        description="Seconds after which a file that no snapshot names is removed. Default three days: another "
        "writer's commit may still be on its way.",
    )
    orphan_interval_s: float = Field(
        default=6 * 3600,
        gt=0,
        description="Seconds between two searches for such files: a search lists the whole table. Default six hours.",
    )


class IcebergTableConfig(DestinationTableConfig):
    """What one table does differently."""

    partition_by: tuple[str, ...] = Field(
        default=(),
        description="Partitions, as Iceberg's transforms of columns: `region`, `days(created_at)`, `bucket(16, id)`, "
        "`truncate(4, zip)`, `years`, `months`, `hours`. Default none.",
    )
    sort_by: tuple[str, ...] = Field(
        default=(),
        description="Columns by which files are sorted, most significant first; `-created_at` is descending. "
        "Default none.",
    )


class IcebergConfig(TableDestinationConfig):
    """Apache Iceberg tables, format version 3, merge on read."""

    warehouse: str = Field(
        min_length=1,
        description="Where the tables' files are: a directory, or a URI such as s3://bucket/path; without # and ?.",
    )
    catalog: CatalogConfig = Field(default=CatalogConfig(), description="Where the tables' names are.")
    json_as: JsonAs = Field(
        default=JsonAs.STRING,
        description="json and jsonb as text, exactly as Postgres has it, or as Iceberg's VARIANT. Default string: "
        "every reader knows it.",
    )
    tables: Mapping[SourceTable, IcebergTableConfig] = Field(
        default={}, description="What single tables do differently, by their name at the source, as schema.table."
    )
    properties: dict[str, str] = Field(
        default={}, description="Table properties for new tables, as Iceberg names them. Default none."
    )
    commit_retries: int = Field(
        default=10,
        ge=0,
        description="How often a commit that met another writer's is tried again. Default 10.",
    )
    maintenance: MaintenanceConfig = Field(default=MaintenanceConfig(), description="Keeping the tables quick to read.")

    @field_validator("warehouse")
    @classmethod
    def _found_by_all_readers(cls, warehouse: str) -> str:
        parsed = urlparse(warehouse)
        if parsed.scheme == "file" and parsed.netloc:
            msg = "must have three slashes after file:, or none and no file: either; what follows two is a host"
            raise ValueError(msg)
        if _CUT.search(str(_local(warehouse) or warehouse)):
            raise ValueError(_CUT_PATH)
        return warehouse

    @model_validator(mode="after")
    def _file_that_can_be_named(self) -> IcebergConfig:
        if "?" in str(self.catalog_file or ""):
            # Behind it are the options of the connection.
            msg = "catalog.uri must have no ? in its path: name another file"
            raise ValueError(msg)
        return self

    @property
    def local_warehouse(self) -> Path | None:
        """The warehouse as a directory; None if it is elsewhere."""
        return _local(self.warehouse)

    @property
    def catalog_file(self) -> Path | None:
        """The SQLite file; None if there is none, or no place for it."""
        if self.catalog.type is not CatalogType.SQLITE:
            return None
        if self.catalog.uri is not None:
            return Path(re.sub(r"^(sqlite:///|file://)", "", self.catalog.uri)).resolve()
        return None if self.local_warehouse is None else self.local_warehouse / "catalog.db"

    def place(self) -> tuple[str, str]:
        """The catalog: its tables tell which table of a pipeline they are, not of which destination."""
        catalog = self.catalog
        where = self.catalog_file or catalog.uri or ""
        # A REST server has many catalogs, told apart by the warehouse.
        return "catalog", f"{catalog.type.value} {where} {self.warehouse if catalog.type is CatalogType.REST else ''}"

    def directories(self) -> Mapping[str, str]:
        places = {"warehouse": str(self.local_warehouse or self.warehouse)}
        if self.catalog_file is not None and self.catalog.uri is not None:
            places["catalog.uri"] = str(self.catalog_file.parent)
        return places


def _local(warehouse: str) -> Path | None:
    if urlparse(warehouse).scheme not in ("", "file"):
        return None
    return Path(re.sub(r"(?i)^file:(//)?", "", warehouse)).resolve()
