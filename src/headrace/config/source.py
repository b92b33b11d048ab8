"""Settings of what Headrace puts into the source database."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from .section import Section

__all__ = ["SourceInstall", "SourceSection"]


class SourceInstall(StrEnum):
    """Whether a start puts into the source what tells of DDL."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class SourceSection(Section):
    """What a pipeline puts into the source database."""

    install: SourceInstall = Field(
        default=SourceInstall.AUTO,
        description="Functions and event triggers in a schema `headrace`, which tell of schema changes as they happen. "
        "auto: put them there at the start if the role may, else go without and say so in the log; always: fail if it "
        "may not; never: use what is there, change nothing. Default auto: superusers have it, others need no rights.",
    )
    failover_slot: bool = Field(
        default=True,
        description="Create the slot so that standbys keep a copy of it (`failover`, Postgres 17 and newer; before, "
        "and on a standby, it has no effect). The standby needs sync_replication_slots, and the primary "
        "synchronized_standby_slots. Default true: without it a failover loses the slot, and all tables are copied "
        "again.",
    )
