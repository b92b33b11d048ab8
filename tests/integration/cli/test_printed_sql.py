"""SQL that commands print for tables whose names have characters that do not print: on one line, and right."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from headrace.remedies import sql_on_one_line
from headrace.schema import TableName


@pytest.mark.parametrize("name", ["new\nline", 'a"b\\c\r\u202e', "plain", "\\n", "\U000e0001"])
def test_it_works_as_printed(connection: psycopg.Connection[Any], name: str) -> None:
    shown = sql_on_one_line(f"CREATE TABLE {TableName('public', name).quoted} (id int)")
    assert shown.isprintable()
    connection.execute(shown.encode())
    found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert found.fetchall() == [(name,)]
