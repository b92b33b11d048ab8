"""Errors as advice, and what exit code each becomes."""

from __future__ import annotations

import errno
import io

import pytest
import typer
import yaml
from pydantic import BaseModel, ValidationError
from rich.console import Console

from headrace.cli.exit_code import ExitCode
from headrace.cli.failing import as_advice, errors_shown, exit_code, show
from headrace.errors import (
    ConfigError,
    DestinationError,
    DestinationFenced,
    HeadraceError,
    PublicationNotFound,
    SourceAuthenticationFailed,
    SourceConnectionFailed,
    SparkUnavailable,
    StoreCorrupt,
    StoreFenced,
    StoreInUse,
    StoreIoError,
    TableNotFound,
)


def shown(error: BaseException) -> str:
    out = io.StringIO()
    show(error, Console(file=out, width=40))
    return out.getvalue()


def test_an_error_is_what_happened_the_detail_and_what_to_do() -> None:
    error = SourceConnectionFailed("no connection to [db]", detail="timeout expired", hint="start the server")
    assert shown(error).splitlines() == [
        "error no connection to [db]",
        "detail timeout expired",
        "what to do start the server",
    ]


def test_no_line_is_broken_and_no_password_shown() -> None:
    error = ConfigError("cannot use postgresql://me:hunter2@db.example.com/a-rather-long-name-of-a-database")
    lines = shown(error).splitlines()
    assert len(lines) == 2
    assert "me:***@db.example.com" in lines[0]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), ExitCode.USAGE),
        (TableNotFound("x"), ExitCode.USAGE),
        (PermissionError(errno.EACCES, "Permission denied", "/data"), ExitCode.USAGE),
        (SourceConnectionFailed("x"), ExitCode.CANNOT_CONNECT),
        (SourceAuthenticationFailed("x"), ExitCode.CANNOT_CONNECT),
        (StoreIoError("x"), ExitCode.CANNOT_CONNECT),
        (StoreCorrupt("x"), ExitCode.CANNOT_CONNECT),
        (StoreInUse("x"), ExitCode.CANNOT_CONNECT),
        (StoreFenced("x"), ExitCode.FENCED),
        (DestinationFenced("x"), ExitCode.FENCED),
        (PublicationNotFound("x"), ExitCode.PIPELINE_FAILED),
        (SparkUnavailable("x"), ExitCode.PIPELINE_FAILED),
        (DestinationError("x"), ExitCode.PIPELINE_FAILED),
        (ZeroDivisionError("x"), ExitCode.PIPELINE_FAILED),
        (KeyboardInterrupt(), ExitCode.CUT_OFF),
    ],
)
def test_each_error_has_an_exit_code(error: BaseException, code: ExitCode) -> None:
    assert exit_code(error) is code


@pytest.mark.parametrize(
    ("number", "said", "remedy"),
    [
        (errno.EROFS, "read-only file system", "data_dir"),
        (errno.EACCES, "permission denied", "writable"),
        (errno.ENOSPC, "no space left on device", "then start again"),
        (errno.EXDEV, "invalid cross-device link", "named in the message"),
    ],
)
def test_what_the_system_refuses_names_the_path_and_a_remedy(number: int, said: str, remedy: str) -> None:
    import os

    text = shown(OSError(number, os.strerror(number), "/srv/data"))
    assert f"/srv/data: {said}" in text.lower()
    assert remedy in text


def test_settings_that_pydantic_refuses_are_named_without_their_values() -> None:
    class Settings(BaseModel):
        port: int

    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"port": "hunter2"})
    text = shown(caught.value)
    assert "- port: " in text
    assert "hunter2" not in text


def test_yaml_that_cannot_be_read_has_its_place() -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.safe_load("a: 1\npassword: *hunter2")
    text = shown(caught.value)
    assert "line 2, column 11: this is not YAML" in text
    assert "hunter2" not in text


def test_an_unexpected_error_shows_its_place_and_not_its_message() -> None:
    def broken() -> None:
        raise ValueError("a row: 4711")

    with pytest.raises(ValueError, match="4711") as caught:
        broken()
    text = shown(caught.value)
    assert "unexpected ValueError" in text
    assert "test_failing.py" in text
    assert "4711" not in text


def test_a_command_that_raises_is_shown_and_leaves_with_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, errors_shown():
        raise StoreIoError("the store is away")
    assert caught.value.exit_code == ExitCode.CANNOT_CONNECT
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("error the store is away\n")


def test_what_typer_knows_passes() -> None:
    with pytest.raises(typer.Exit) as caught, errors_shown():
        raise typer.Exit(ExitCode.NOT_WELL)
    assert caught.value.exit_code == ExitCode.NOT_WELL


def test_our_own_errors_are_taken_as_they_are() -> None:
    error = HeadraceError("x")
    assert as_advice(error) is error
