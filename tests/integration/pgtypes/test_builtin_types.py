"""The table of built-in types says what the server's catalog says."""

from __future__ import annotations

import psycopg
import pytest

from headrace.pgtypes.oids import builtin_type

pytestmark = pytest.mark.matrix

QUERY = """
    SELECT t.oid::int, t.typname, t.typtype::text, t.typdelim::text,
           CASE WHEN t.typcategory = 'A' AND t.typname LIKE '\\_%' THEN t.typelem::int ELSE 0 END
    FROM pg_type t
    WHERE t.oid < 10000 AND t.typtype IN ('b', 'r', 'm')
      AND t.typelem NOT IN (SELECT oid FROM pg_type WHERE typtype IN ('c', 'p'))
"""


def test_every_built_in_type_is_known(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    rows = connection.execute(QUERY).fetchall()
    assert len(rows) > 150
    for oid, name, kind, delimiter, element in rows:
        known = builtin_type(oid)
        assert known is not None, name
        assert (known.name, known.kind, known.delimiter) == (name, kind, delimiter)
        assert (known.element.oid if known.element else 0) == element
