"""telemetry.logging: JSON and text, levels, the standard library's records, and no secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from headrace.config.telemetry import LogConfig, LogFormat, LogLevel
from headrace.lsn import Lsn
from headrace.schema import TableName
from headrace.telemetry.logging import KEYS, configure_logging

SECRET = "do-not-show-me"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Logging is the process's: put it back."""
    root = logging.getLogger()
    level = root.level
    yield
    root.handlers = [handler for handler in root.handlers if handler.get_name() != "headrace"]
    root.setLevel(level)
    structlog.reset_defaults()


def logged(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def json_stream(**settings: Any) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(LogConfig(format=LogFormat.JSON, **settings), stream)
    return stream


def test_an_event_is_a_line_of_json_that_begins_with_the_known_keys() -> None:
    stream = json_stream()
    log = structlog.get_logger("headrace.apply")
    placed = {"table": TableName("public", "orders"), "destination": "lake", "pipeline": 1}
    log.info("batch applied", rows=3, lsn=Lsn.parse("0/16B3748"), **placed)
    (event,) = logged(stream)
    assert list(event) == [*KEYS, "rows"]
    assert {name: event[name] for name in event if name != "timestamp"} == {
        "level": "info",
        "logger": "headrace.apply",
        "event": "batch applied",
        "pipeline": 1,
        "destination": "lake",
        "table": "public.orders",
        "lsn": "0/16B3748",
        "rows": 3,
    }
    assert event["timestamp"].endswith("Z")


def test_records_of_the_standard_library_take_the_same_way() -> None:
    stream = json_stream()
    logging.getLogger("other").warning("%s of %s with password=%s", 1, 2, SECRET)
    (event,) = logged(stream)
    assert (event["event"], event["level"], event["logger"]) == ("1 of 2 with password=***", "warning", "other")


def test_the_pipeline_is_in_every_event() -> None:
    stream = io.StringIO()
    configure_logging(LogConfig(), stream, pipeline=7)
    structlog.get_logger().info("a")
    logging.getLogger("x").warning("b")
    structlog.get_logger().info("c", pipeline=8)
    assert [event["pipeline"] for event in logged(stream)] == [7, 7, 8]


def test_the_level_holds_for_both() -> None:
    stream = json_stream(level=LogLevel.WARNING)
    structlog.get_logger().info("no")
    logging.getLogger("x").info("no")
    structlog.get_logger().warning("yes")
    assert [event["event"] for event in logged(stream)] == ["yes"]


def test_a_library_that_logs_its_arguments_stays_quiet() -> None:
    stream = json_stream(level=LogLevel.DEBUG)
    logging.getLogger("py4j.clientserver").debug("Command to send: %s", SECRET)
    structlog.get_logger().debug("yes")
    assert [event["event"] for event in logged(stream)] == ["yes"]


@pytest.mark.parametrize(
    ("stream", "format_", "as_json"),
    [
        (io.StringIO(), LogFormat.AUTO, True),
        (Terminal(), LogFormat.AUTO, False),
        (Terminal(), LogFormat.JSON, True),
        (io.StringIO(), LogFormat.CONSOLE, False),
    ],
)
def test_auto_is_text_on_a_terminal_and_json_elsewhere(stream: io.StringIO, format_: LogFormat, as_json: bool) -> None:
    configure_logging(LogConfig(format=format_), stream)
    structlog.get_logger().info("hello", lsn=Lsn(255))
    assert stream.getvalue().startswith("{") == as_json
    assert "hello" in stream.getvalue()
    assert "0/FF" in stream.getvalue()


@pytest.mark.parametrize("format_", [LogFormat.JSON, LogFormat.CONSOLE])
def test_a_traceback_shows_no_secret_and_no_local_variables(format_: LogFormat) -> None:
    stream = io.StringIO()
    configure_logging(LogConfig(format=format_), stream)

    def connect() -> None:
        local = f"{SECRET}-local"
        msg = f"cannot connect: host=db password={SECRET} user={len(local)}"
        raise ValueError(msg)

    for log in (structlog.get_logger("a"), logging.getLogger("b")):
        try:
            connect()
        except ValueError:
            log.exception("failed")
    text = stream.getvalue()
    assert text.count("ValueError: cannot connect: host=db password=***") == 2
    # The source lines of a traceback name the variable; its value must not be there.
    assert SECRET not in text


def test_it_may_be_called_again_and_leaves_others_alone() -> None:
    theirs = logging.NullHandler()
    logging.getLogger().addHandler(theirs)
    try:
        first, second = json_stream(), json_stream()
        structlog.get_logger().info("once")
        logging.getLogger("x").warning("twice")
        assert first.getvalue() == ""
        assert [event["event"] for event in logged(second)] == ["once", "twice"]
        assert theirs in logging.getLogger().handlers
    finally:
        logging.getLogger().removeHandler(theirs)


def test_what_py4j_says_of_a_java_that_ends_is_left_out() -> None:
    stream = io.StringIO()
    configure_logging(LogConfig(), stream)
    for name, level in (("root", logging.INFO), ("root", logging.ERROR), ("py4j.clientserver", logging.WARNING)):
        record = logging.LogRecord(name, level, "/x/py4j/java_gateway.py", 1, f"said at {level}", (), None)
        logging.getLogger(None if name == "root" else name).handle(record)
    assert [event["event"] for event in logged(stream)] == ["said at 30"]


def test_names_do_not_steer_the_terminal() -> None:
    stream = Terminal()
    configure_logging(LogConfig(format=LogFormat.CONSOLE), stream)
    structlog.get_logger().warning("left out", table="public.esc\x1b[2J\x9b31m")
    assert r"public.esc\x1b[2J\x9b31m" in stream.getvalue()
    assert "\x1b[2J" not in stream.getvalue()
