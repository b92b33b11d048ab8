"""Settings of the receiver, the process that holds the replication slot."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from .connection import PgConnectionConfig
from .form import Form
from .section import Section
from .spool import SpoolConfig
from .telemetry import LogConfig

__all__ = ["ReceiverConfig", "ReceiverSection", "SlotName", "StreamConfig"]

SlotName = Annotated[str, Form(r"^[a-z0-9_]{1,63}$", "must be 1 to 63 of a-z, 0-9 and _")]
"""What Postgres takes for the name of a slot."""


class ReceiverSection(Section):
    """How the receiver talks to the server."""

    streaming: bool = Field(
        default=True,
        description="Ask the server to send large transactions before they commit, so that neither side keeps them "
        "in memory or on the source's disk.",
    )
    status_interval_ms: int = Field(
        default=1000,
        ge=10,
        description="Milliseconds between two reports to Postgres. Far below any sensible wal_sender_timeout (60 s).",
    )
    reconnect_max_delay_ms: int = Field(
        default=30_000, ge=10, description="Upper bound in milliseconds of the doubling delay between reconnects."
    )
    probe_after_ms: int = Field(
        default=30_000,
        ge=10,
        description="Milliseconds without a byte from the server after which it is asked for a reply. Default 30,000: "
        "half of the next.",
    )
    silence_timeout_ms: int = Field(
        default=60_000,
        ge=20,
        description="Milliseconds without a byte from the server, a reply included, after which the connection counts "
        "as dead and another is made. A proxy or load balancer can keep a connection open that leads nowhere. Default "
        "60,000: wal_receiver_timeout of Postgres's own subscriptions. Raise it if the server needs longer to read "
        "through a large transaction that is not published.",
    )
    backlog_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=1024,
        description="Bytes received but not yet taken by the spool's writer before reading pauses. A tenth of a second "
        "of a busy server; each byte costs about three in memory, because messages lie there one by one.",
    )

    @model_validator(mode="after")
    def _probe_before_timeout(self) -> ReceiverSection:
        if self.probe_after_ms >= self.silence_timeout_ms:
            msg = "silence_timeout_ms must be above probe_after_ms, so that the server has time to reply"
            raise ValueError(msg)
        return self


class StreamConfig(ReceiverSection):
    """What is read through a slot, and from where."""

    pg_connection: PgConnectionConfig = Field(description="The source database and how to log in to it.")
    publication_name: str = Field(min_length=1, max_length=63, description="The publication to read.")
    slot_name: SlotName = Field(
        description="The logical replication slot, made beforehand with the pgoutput plugin. One receiver reads it.",
    )
    pipeline_id: int = Field(default=0, ge=0, description="Part of application_name, to tell connections apart.")


class ReceiverConfig(StreamConfig):
    """The same, and where the receiver puts it."""

    spool: SpoolConfig = Field(description="Where what was received goes.")
    log: LogConfig = Field(default=LogConfig(), description="What the receiver's process logs, and how.")
