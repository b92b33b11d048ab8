"""Settings of the Spark session that runs the tasks."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from .form import Form

__all__ = ["SparkConfig"]

# group:artifact:version, with Maven's optional packaging and classifier between.
_COORDINATE = re.compile(r"[\w.\-]+:[\w.\-]+(:[\w.\-]+){1,3}", re.ASCII)
# Spark settings that are fields here, or on which correct results depend.
_OWN_FIELDS = {
    "spark.master": "master",
    "spark.app.name": "app_name",
    "spark.jars.packages": "packages",
    "spark.driver.memory": "driver_memory",
    "spark.task.maxFailures": "task_max_failures",
}
_PINNED = frozenset({"spark.sql.session.timeZone"})
_MEMORY = Form(r"^[1-9][0-9]*[kmgt]$", "must be a whole number with unit k, m, g or t, such as 2g")


class SparkConfig(BaseModel):
    """Where Spark runs and with what; everything else about the session follows from it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    master: str = Field(
        default="local[*]",
        min_length=1,
        description="Where the tasks run: local[N], local[*], spark://…, yarn, k8s://…. Default local[*]: all cores of "
        "this machine, no cluster needed.",
    )
    app_name: str = Field(
        default="headrace",
        min_length=1,
        description="The name shown by the cluster and in Spark's logs. Default headrace.",
    )
    packages: tuple[str, ...] = Field(
        default=(),
        description="Jars to load, as Maven coordinates group:artifact:version. Default none: each destination adds "
        "what it needs, verified by SHA-256. What you name is not verified, and takes the place of another version.",
    )
    driver_memory: Annotated[str, _MEMORY] = Field(
        default="2g",
        description="Upper bound of the JVM's heap in the driver, a number with unit k, m, g or t. Default 2g: with a "
        "local master the merges of all tables run in it; rows that are only added never enter it.",
    )
    task_max_failures: int = Field(
        default=4,
        ge=1,
        description="How often one task may fail before its job fails. Default 4, Spark's own on clusters; it holds "
        "for local masters too, where Spark would not retry at all.",
    )
    short_lived: bool = Field(
        default=False,
        description="Compile the JVM's code quickly and simply (-XX:TieredStopAtLevel=1): nearly halves the CPU of the "
        "first minutes, costs throughput after them. Default false; meant for tests and demos.",
    )
    conf: dict[str, str] = Field(
        default={},
        repr=False,
        description="Further Spark settings, passed as they are; they win over those Headrace chooses. Default none. "
        "No secrets: Spark shows its settings in process lists; leave them to credential providers.",
    )

    @field_validator("packages")
    @classmethod
    def _coordinates(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        for package in packages:
            if not _COORDINATE.fullmatch(package):
                msg = f"{package!r} is no Maven coordinate: write group:artifact:version"
                raise ValueError(msg)
        return packages

    @field_validator("conf")
    @classmethod
    def _foreign_settings(cls, conf: dict[str, str]) -> dict[str, str]:
        for name in sorted(conf):
            if not name.startswith("spark."):
                msg = f"{name!r} is no Spark setting: its name must begin with 'spark.'"
                raise ValueError(msg)
            if name in _OWN_FIELDS:
                msg = f"{name} has a field of its own: {_OWN_FIELDS[name]}"
                raise ValueError(msg)
            if name in _PINNED:
                msg = f"{name} is set by headrace: timestamps are UTC everywhere"
                raise ValueError(msg)
        return conf
