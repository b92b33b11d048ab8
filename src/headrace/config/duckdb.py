"""Settings of the DuckDB destination, which writes a file or a database at MotherDuck, and of DuckLake."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, model_validator

from .form import Form
from .section import Section
from .table_destination import TableDestinationConfig

__all__ = [
    "MOTHERDUCK",
    "DuckDBConfig",
    "DuckDBEngineConfig",
    "DuckLakeCatalogConfig",
    "DuckLakeCatalogType",
    "DuckLakeConfig",
    "DuckLakeMaintenanceConfig",
]

MOTHERDUCK = "md:"
"""How the name of a database at MotherDuck begins."""

_PASSWORD = re.compile(r"password|://[^/@]*:[^/@]*@", re.IGNORECASE)
"""In a connection string, or in a URI."""

_MEMORY = Form(r"^\d+(\.\d+)? ?([kKMGT]i?B)$", "must be a number with a unit, written as 512MB or 4GiB")


class DuckDBEngineConfig(Section):
    """What DuckDB may use of the driver's machine."""

    memory_limit: Annotated[str, _MEMORY] = Field(
        default="2GB",
        description="Memory that DuckDB takes at most, as 512MB or 4GiB; what needs more goes to disk. Default 2GB: "
        "Spark runs on the same machine.",
    )
    threads: int | None = Field(
        default=None, ge=1, description="Threads that DuckDB runs on. Default none: one for each core."
    )


class DuckDBConfig(TableDestinationConfig):
    """A DuckDB database: a file, or one at MotherDuck."""

    database: str = Field(
        min_length=1,
        description="The database: a file, which is made if it is not there, or `md:NAME` for one at MotherDuck.",
    )
    token: SecretStr | None = Field(
        default=None,
        description="The access token for MotherDuck. Default none: the variable motherduck_token. Give it by "
        "environment: HEADRACE__DESTINATION__TOKEN.",
    )
    release: bool = Field(
        default=False,
        description="Whether the file is closed when nothing is written, so that other processes may read it then: "
        "DuckDB lets no other process open a file while one writes to it. Default false: batches are quicker.",
    )
    lock_timeout_s: float = Field(
        default=60.0,
        ge=0,
        description="Seconds to wait for a file that another process has open; then it is an error, and tried again "
        "like others. Default 60: a reader's query may take a while.",
    )
    staging: str | None = Field(
        default=None,
        min_length=1,
        description="A directory, shared by driver and executors, where tasks put rows for DuckDB to read. Default "
        "none: one beside the database's file, or among the system's temporary files.",
    )
    engine: DuckDBEngineConfig = Field(
        default=DuckDBEngineConfig(), description="What DuckDB may use of the driver's machine."
    )

    @property
    def is_motherduck(self) -> bool:
        return self.database.startswith(MOTHERDUCK)

    def directories(self) -> Mapping[str, str]:
        places = {} if self.is_motherduck else {"database": str(Path(self.database).parent)}
        return places if self.staging is None else {**places, "staging": self.staging}

    def place(self) -> tuple[str, str]:
        return "database", self.database if self.is_motherduck else str(Path(self.database).resolve())

    @model_validator(mode="after")
    def _name_of_a_database(self) -> DuckDBConfig:
        if self.database == MOTHERDUCK:
            msg = "database is md: without a name; write md:NAME"
            raise ValueError(msg)
        if self.is_motherduck and self.release:
            msg = "release is for files: a database at MotherDuck has many readers at once"
            raise ValueError(msg)
        return self


class DuckLakeCatalogType(StrEnum):
    """Which database keeps the lake's metadata."""

    DUCKDB = "duckdb"
    SQLITE = "sqlite"
    POSTGRES = "postgres"


class DuckLakeCatalogConfig(Section):
    """The database with the lake's metadata: tables, snapshots, the names of files."""

    type: DuckLakeCatalogType = Field(
        default=DuckLakeCatalogType.SQLITE,
        description="A DuckDB file, for one process; a SQLite file, for several on one machine; or Postgres, for "
        "readers anywhere. Default sqlite.",
    )
    uri: str = Field(
        min_length=1,
        description="The file, or how Postgres is reached, as a libpq connection string without a password: "
        "`host=db.example.com dbname=lake user=lake`.",
    )
    password: SecretStr | None = Field(
        default=None,
        description="The password for Postgres. Default none: libpq's own ways (PGPASSWORD, ~/.pgpass). Give it by "
        "environment: HEADRACE__DESTINATION__CATALOG__PASSWORD.",
    )
    metadata_schema: str | None = Field(
        default=None,
        min_length=1,
        description="The schema in Postgres that holds the metadata, so that several lakes fit into one database. "
        "Default none: public.",
    )

    @model_validator(mode="after")
    def _no_password_in_the_uri(self) -> DuckLakeCatalogConfig:
        if self.type is DuckLakeCatalogType.POSTGRES and _PASSWORD.search(self.uri):
            msg = "uri has a password in it; it belongs into password"
            raise ValueError(msg)
        return self


class DuckLakeMaintenanceConfig(Section):
    """Keeping the lake quick to read: merging small files, forgetting old snapshots, removing what nobody needs."""

    enabled: bool = Field(default=True, description="Whether to do it at all. Default true.")
    interval_s: float = Field(
        default=600,
        gt=0,
        description="Seconds between two rounds; batches wait while one runs. Default 600.",
    )
    snapshot_age_s: float = Field(
        default=86_400,
        ge=0,
        description="Seconds for which old snapshots can be read. Default a day.",
    )
    retention_s: float = Field(
        default=6 * 3600,
        ge=0,
        description="Seconds for which files that no snapshot refers to any more are kept at least, so that queries "
        "that began before can finish. Default six hours.",
    )
    deleted_ratio: float = Field(
        default=0.3,
        gt=0,
        le=1,
        description="A file of which this share of rows is deleted is written anew. Default 0.3.",
    )


class DuckLakeConfig(TableDestinationConfig):
    """DuckLake tables: Parquet files, with their metadata in a database."""

    catalog: DuckLakeCatalogConfig = Field(description="The database with the lake's metadata.")
    data_path: str = Field(
        min_length=1,
        description="Where the tables' files are: a directory, or a URI such as s3://bucket/path.",
    )
    storage: dict[str, str] = Field(
        default={},
        description="How the storage of `data_path` is reached, by the parameters of DuckDB's CREATE SECRET: "
        "`endpoint`, `region`, `url_style`, `use_ssl`. Default none.",
    )
    secrets: dict[str, SecretStr] = Field(
        default={},
        description="Parameters that are secrets (`key_id`, `secret`, `session_token`): as `storage`, but never shown. "
        "Give them by environment: HEADRACE__DESTINATION__SECRETS as a JSON object. Default none: the environment's "
        "own credentials are not looked for.",
    )
    data_inlining_row_limit: int = Field(
        default=1_000,
        ge=0,
        description="Inserts of up to this many rows go into the catalog instead of a file of their own, until "
        "maintenance writes them out. 0: none do. Default 1000: a batch a second makes no files by itself.",
    )
    staging: str | None = Field(
        default=None,
        min_length=1,
        description="A directory, shared by driver and executors, where tasks put rows for DuckDB to read. Default "
        "none: one among the system's temporary files.",
    )
    engine: DuckDBEngineConfig = Field(
        default=DuckDBEngineConfig(), description="What DuckDB may use of the driver's machine."
    )
    maintenance: DuckLakeMaintenanceConfig = Field(
        default=DuckLakeMaintenanceConfig(), description="Keeping the lake quick to read."
    )

    def directories(self) -> Mapping[str, str]:
        places = {"data_path": self.data_path}
        if self.catalog.type is not DuckLakeCatalogType.POSTGRES:
            places["catalog.uri"] = str(Path(self.catalog.uri).parent)
        return places if self.staging is None else {**places, "staging": self.staging}

    def place(self) -> tuple[str, str]:
        catalog = self.catalog
        uri = catalog.uri if catalog.type is DuckLakeCatalogType.POSTGRES else str(Path(catalog.uri).resolve())
        return "catalog", f"{catalog.type.value} {uri} {catalog.metadata_schema}"
