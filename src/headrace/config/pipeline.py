"""Settings of a pipeline: all that a configuration file may hold. `load.load_pipeline_config` reads one.

The models know no stage of the pipeline. What a stage needs is made from them: `spool_config`, `receiver_config`.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from .batch import BatchConfig, MemoryBackpressureConfig
from .connection import PgConnectionConfig
from .destination import DestinationConfig
from .lane import UNNAMED, DestinationName
from .receiver import ReceiverConfig, ReceiverSection, SlotName
from .schema_changes import SchemaChangesConfig
from .section import Section
from .source import SourceSection
from .spark import SparkConfig
from .spool import SpoolConfig, SpoolSection
from .table_copy import CopyConfig, TableSyncCopyConfig
from .telemetry import LogConfig, MetricsConfig
from .transforms import TransformsConfig

__all__ = [
    "InvalidatedSlotBehavior",
    "OnTableRemoved",
    "OnUnrepresentable",
    "PipelineConfig",
    "PipelineMode",
    "StoreConfig",
    "StoreKind",
]


class PipelineMode(StrEnum):
    """What a pipeline does with its tables."""

    COPY_AND_STREAM = "copy_and_stream"
    COPY_ONLY = "copy_only"
    STREAM_ONLY = "stream_only"


class InvalidatedSlotBehavior(StrEnum):
    """What happens when the server dropped WAL that the slot needs."""

    ERROR = "error"
    RECREATE = "recreate"


class OnTableRemoved(StrEnum):
    """What becomes of the destination's table when its source leaves the publication."""

    KEEP = "keep"
    DROP = "drop"


class OnUnrepresentable(StrEnum):
    """What happens to a value that its type at the destination cannot hold."""

    QUARANTINE = "quarantine"
    ERROR = "error"


class StoreKind(StrEnum):
    """Where states, schemas and progress are kept."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"
    MEMORY = "memory"


class StoreConfig(Section):
    """Where table states, schema versions and progress are kept."""

    kind: StoreKind = Field(
        default=StoreKind.SQLITE,
        description="A file; the schema `headrace` of a Postgres database (store_pg_connection, else the source); or "
        "this process's memory, so that every start copies all tables again. Default sqlite: nothing to set up.",
    )
    path: Path | None = Field(
        default=None,
        description="For sqlite: the file. Default none: `pipeline-<id>/store.db` in data_dir.",
    )

    @model_validator(mode="after")
    def _path_of_a_file(self) -> StoreConfig:
        if self.path is not None and self.kind is not StoreKind.SQLITE:
            msg = f"path must be left out with kind {self.kind.value}"
            raise ValueError(msg)
        return self


def _slot_name(settings: dict[str, Any]) -> str:
    return f"headrace_{settings.get('id', 0)}"


class PipelineConfig(Section):
    """A pipeline: one publication of one database, to one destination or several."""

    id: int = Field(
        ge=0,
        lt=1 << 63,
        description="The pipeline's number: part of the names of its slot, its files and its connections, and its key "
        "in a shared store. Never change it while the pipeline lives.",
    )
    publication_name: str = Field(min_length=1, max_length=63, description="The publication to read.")
    pg_connection: PgConnectionConfig = Field(description="The source database and how to log in to it.")
    slot_name: SlotName = Field(
        default_factory=_slot_name,
        description="The logical replication slot, created when it is missing. Default: from the id. Name one to take "
        "over a slot that exists.",
    )
    mode: PipelineMode = Field(
        default=PipelineMode.COPY_AND_STREAM,
        description="Copy the tables and then stream their changes; copy them and stop; or stream from now on without "
        "copying. Default copy_and_stream: the destination then equals the source.",
    )
    destination: DestinationConfig | None = Field(
        default=None, description="Where rows and events go. Default none: for those who give the object in Python."
    )
    destinations: dict[DestinationName, DestinationConfig] = Field(
        default={},
        description="Several destinations by name, in place of destination: each has its own progress, retries and "
        "errors. The one called default goes on where destination was. Default none.",
    )
    data_dir: Path = Field(
        default=Path(".headrace"),
        description="Directory for what has no place of its own: spool and store. A relative one starts at the working "
        "directory. Default .headrace: visible where the pipeline was started, and easy to leave out of git.",
    )
    source: SourceSection = Field(default=SourceSection(), description="What is put into the source database.")
    schema_changes: SchemaChangesConfig = Field(
        default=SchemaChangesConfig(), description="What happens when a table of the source is altered."
    )
    transforms: TransformsConfig = Field(
        default=TransformsConfig(), description="What is left out, masked or filtered before any destination sees it."
    )
    spool: SpoolSection = Field(default=SpoolSection(), description="Where the raw WAL waits for Spark.")
    store: StoreConfig = Field(default=StoreConfig(), description="Where states, schemas and progress are kept.")
    store_pg_connection: PgConnectionConfig | None = Field(
        default=None,
        description="The database of the store, with store.kind postgres. Default none: the source database.",
    )
    batch: BatchConfig = Field(default=BatchConfig(), description="How much is written at once.")
    table_sync_copy: TableSyncCopyConfig = Field(
        default=TableSyncCopyConfig(), description="Which tables are copied before they are streamed."
    )
    # Not called `copy`: pydantic's models have a method of that name.
    initial_copy: CopyConfig = Field(default=CopyConfig(), description="How a table is cut into ranges.")
    max_table_sync_workers: int = Field(
        default=4,
        ge=1,
        description="Tables copied at the same time, to each destination. Default 4: with the next, 16 connections at "
        "most for one.",
    )
    max_copy_connections_per_table: int = Field(
        default=4,
        ge=1,
        description="Connections that copy one table at the same time, whatever the size of the cluster. Default 4: "
        "one server process each on the source.",
    )
    table_error_retry_delay_ms: int = Field(
        default=10_000,
        ge=1,
        description="Milliseconds before a table that failed is tried again; doubled with each failure in a row, up "
        "to 2 minutes. Default 10,000: most outages that mend themselves are shorter.",
    )
    table_error_retry_max_attempts: int | None = Field(
        default=None,
        ge=0,
        description="Retries in a row, after errors that may pass with time, before a table waits for an operator; a "
        "success starts the count anew. Default none: there is no limit, so that nobody has to act after an outage, "
        "however long (a pipeline of mode `copy_only` gives up after 5). Errors that time cannot heal are never "
        "retried.",
    )
    memory_refresh_interval_ms: int = Field(
        default=100,
        ge=1,
        description="Milliseconds between two looks at the memory in use. Default 100: a batch cannot fill it between.",
    )
    memory_backpressure: MemoryBackpressureConfig | None = Field(
        default=MemoryBackpressureConfig(),
        description="When to slow down for want of memory. Null never does.",
    )
    replication_lag_refresh_interval_ms: int = Field(
        default=10_000,
        ge=100,
        description="Milliseconds between two looks at the slot on the source: lag and WAL retained. "
        "Default 10,000: one cheap query.",
    )
    invalidated_slot_behavior: InvalidatedSlotBehavior = Field(
        default=InvalidatedSlotBehavior.ERROR,
        description="When the slot lost its WAL or cannot be decoded, or the spool lost changes that the slot no "
        "longer has: stop with an error, or make a new slot and copy all tables again. Default "
        "error: copying everything is for you to decide.",
    )
    on_table_removed: OnTableRemoved = Field(
        default=OnTableRemoved.KEEP,
        description="When a table leaves the publication, or is dropped: keep the destination's table as it is, or "
        "drop it too. Default keep: nothing is lost by a mistake at the source.",
    )
    on_unrepresentable: OnUnrepresentable = Field(
        default=OnUnrepresentable.QUARANTINE,
        description="A value that its type at the destination cannot hold (NaN in a decimal, an infinite date): write "
        "NULL and note the value in the quarantine table, or stop the table. Default quarantine: one value stops "
        "nothing.",
    )
    receiver: ReceiverSection = Field(default=ReceiverSection(), description="How the receiver talks to the server.")
    spark: SparkConfig = Field(default=SparkConfig(), description="The Spark session.")
    metrics: MetricsConfig = Field(default=MetricsConfig(), description="The HTTP endpoint that Prometheus reads.")
    log: LogConfig = Field(default=LogConfig(), description="What is logged, and how.")

    @model_validator(mode="after")
    def _store_connection_is_used(self) -> PipelineConfig:
        if self.store_pg_connection is not None and self.store.kind is not StoreKind.POSTGRES:
            msg = "store_pg_connection must be left out, or store.kind be postgres"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _one_way_to_name_destinations(self) -> PipelineConfig:
        if self.destination is not None and self.destinations:
            msg = "give destination or destinations, not both"
            raise ValueError(msg)
        return self

    @property
    def lanes(self) -> dict[str, DestinationConfig]:
        """The destinations that the settings name, by name; the only one of `destination` has none."""
        return dict(self.destinations) if self.destination is None else {UNNAMED: self.destination}

    @property
    def directory(self) -> Path:
        """This pipeline's own part of `data_dir`."""
        return self.data_dir / f"pipeline-{self.id}"

    @property
    def store_path(self) -> Path:
        """The file of a SQLite store."""
        return self.store.path or self.directory / "store.db"

    @property
    def quarantine(self) -> bool:
        """Whether values that a type cannot hold are put aside."""
        return self.on_unrepresentable is OnUnrepresentable.QUARANTINE

    def spool_config(self) -> SpoolConfig:
        """The spool, with its place filled in."""
        uri = self.spool.uri or str(self.directory / "spool")
        return SpoolConfig.model_validate({**dict(self.spool), "uri": uri})

    def receiver_config(self) -> ReceiverConfig:
        """What the receiver of this pipeline is started with."""
        return ReceiverConfig.model_validate(
            {
                **dict(self.receiver),
                "pg_connection": self.pg_connection,
                "publication_name": self.publication_name,
                "slot_name": self.slot_name,
                "spool": self.spool_config(),
                "log": self.log,
                "pipeline_id": self.id,
            }
        )
