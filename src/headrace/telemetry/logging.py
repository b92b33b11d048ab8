"""Sets up logging for a process of Headrace: the command line's, the receiver's. A library's user sets up their own.

Everything goes to one stream: structlog's events and the standard library's records, as JSON or as text for a person.
Known keys are `pipeline`, `destination` (of several), `table` and `lsn`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from ..config.telemetry import LogConfig, LogFormat
from ..remedies import name_file
from .redaction import escape_json, escape_unprintable, redact

__all__ = ["KEYS", "configure_logging"]

KEYS = ("timestamp", "level", "logger", "event", "pipeline", "destination", "table", "lsn")
"""What a line begins with, as far as it has it."""

_HANDLER = "headrace"
_MULTILINE = ("exception", "stack")
# They log every call at debug level, with arguments, or chat at info level.
_NOISY = ("py4j", "asyncio", "fsspec", "s3fs", "botocore", "urllib3")


def configure_logging(config: LogConfig, stream: TextIO | None = None, pipeline: int | None = None) -> None:
    """Log to `stream` (standard error) from now on. May be called again; handlers of others are left alone.

    `pipeline` is added to every event, in every thread.
    """
    out = sys.stderr if stream is None else stream
    as_json = config.format is LogFormat.JSON or (config.format is LogFormat.AUTO and not out.isatty())
    level = logging.getLevelName(config.level.value.upper())
    before = _before_rendering(pipeline)
    structlog.configure(
        processors=[*before, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.set_name(_HANDLER)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(as_json)],
        )
    )
    handler.addFilter(_is_worth_it)
    root = logging.getLogger()
    root.handlers = [other for other in root.handlers if other.get_name() != _HANDLER] + [handler]
    root.setLevel(level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _is_worth_it(record: logging.LogRecord) -> bool:
    """py4j logs calls that meet a Java that is ending under no name of its own, with their traceback.

    Whoever called is told by an exception. When the process ends, nobody has: objects of Java are let go.
    """
    return record.name != "root" or Path(record.pathname).parent.name != "py4j"


def _before_rendering(pipeline: int | None) -> list[Processor]:
    def add_pipeline(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if pipeline is not None:
            event.setdefault("pipeline", pipeline)
        return event

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        # Plain tracebacks: the richer kinds show local variables, and with them passwords and rows.
        structlog.processors.format_exc_info,
        add_pipeline,
        _name_file,
        redact,
        _in_order,
    ]


def _name_file(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if isinstance(event.get("hint"), str):
        event["hint"] = name_file(event["hint"])
    return event


def _in_order(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {**{key: event[key] for key in KEYS if key in event}, **event}


def _renderer(as_json: bool) -> Processor:
    if as_json:
        as_text = structlog.processors.JSONRenderer(ensure_ascii=False)
        return lambda logger, method, event: escape_json(str(as_text(logger, method, event)))
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)

    def render(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        texts = {key: value for key, value in event.items() if isinstance(value, str)}
        shown = {key: escape_unprintable(text, keep_line_breaks=key in _MULTILINE) for key, text in texts.items()}
        return str(renderer(logger, method, {**event, **shown}))

    return render
