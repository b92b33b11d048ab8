"""Settings of logs and metrics."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from .section import Section

__all__ = ["LogConfig", "LogFormat", "LogLevel", "MetricsConfig"]


class LogLevel(StrEnum):
    """The least severity that is logged; the words are those of Python's logging."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a log line looks."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogConfig(Section):
    """What is logged, and how."""

    level: LogLevel = Field(
        default=LogLevel.INFO,
        description="The least severity that is logged. Default info: a few lines per table and event, none per batch.",
    )
    format: LogFormat = Field(
        default=LogFormat.AUTO,
        description="One JSON object per line, or coloured text. Default auto: text on a terminal, JSON elsewhere.",
    )


class MetricsConfig(Section):
    """The HTTP endpoint that Prometheus reads."""

    enabled: bool = Field(
        default=False, description="Whether to serve metrics. Default false: no port is opened that nobody asked for."
    )
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on. Default loopback: the endpoint has no password. Use 0.0.0.0 in a container.",
    )
    port: int = Field(
        default=9000,
        ge=0,
        le=65535,
        description="TCP port. Default 9000, as in supabase/etl; 0 takes a free one and logs which.",
    )
