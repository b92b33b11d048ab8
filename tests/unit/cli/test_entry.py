"""Connection strings on the command line lose their password before anything else happens; help comes at once."""

from __future__ import annotations

import pytest

from commanding import HEAVY, run_and_list_modules
from headrace.cli.entry import without_password
from headrace.postgres.connection import parse_conninfo

SECRETS = ["hunter2", "p%@ss:w/rd?&=", "it's \\ quoted", "pässwört", "a b"]


@pytest.mark.parametrize(
    ("given", "left", "password"),
    [
        ("postgresql://u:hunter2@h:5432/d", "postgresql://u@h:5432/d", "hunter2"),
        ("postgres://u:p%40ss@h/d?sslmode=require", "postgres://u@h/d?sslmode=require", "p@ss"),
        ("postgresql://u@h/d?password=hunter2&sslmode=require", "postgresql://u@h/d?sslmode=require", "hunter2"),
        ("postgresql://u@h/d?sslmode=require&password=hunter2", "postgresql://u@h/d?sslmode=require", "hunter2"),
        ("--source=postgresql://u:hunter2@h/d", "--source=postgresql://u@h/d", "hunter2"),
        ("host=h password=hunter2 dbname=d", "host=h dbname=d", "hunter2"),
        ("password = 'a b' host=h", "host=h", "a b"),
        ("--source=password=hunter2 host=h", "--source=host=h", "hunter2"),
        (r"host=h password='it\'s \\ here'", "host=h ", "it's \\ here"),
    ],
)
def test_the_password_is_taken_out(given: str, left: str, password: str) -> None:
    assert without_password(given) == (left, password)


@pytest.mark.parametrize(
    "given",
    ["--password-file", "--password-file=/run/secret", "postgresql://u@h/d", "host=h dbname=d", "password", "orders"],
)
def test_what_holds_no_password_stays(given: str) -> None:
    assert without_password(given) == (given, None)


@pytest.mark.parametrize("secret", SECRETS)
def test_libpq_reads_the_same_password(secret: str) -> None:
    quoted = secret.replace("\\", "\\\\").replace("'", "\\'")
    conninfo = f"host=h password='{quoted}' dbname=d"
    read = parse_conninfo(conninfo).password
    assert read is not None
    left, found = without_password(conninfo)
    assert (left, found) == ("host=h dbname=d", read.get_secret_value() == secret and secret)


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("check", "--help"), ("status", "--help")])
def test_help_loads_neither_spark_nor_arrow(arguments: tuple[str, ...]) -> None:
    output, loaded = run_and_list_modules(*arguments)
    assert "headrace" in output
    assert "typer" in loaded
    assert loaded & HEAVY == set()
