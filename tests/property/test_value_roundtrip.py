"""Any value, whichever way it comes from a real server, is one Arrow value, and the one psycopg reads.

Each case asks the server for the same values three ways: text, COPY CSV, and psycopg's own loading. The server's text
is the oracle for what a rejected value is reported with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from roundtrip_cases import ARRAY_CASES, CASES, SETUP, TEXT_ONLY_CASES, Case

from headrace.pgtypes.contract import Conversion, Converted
from headrace.pgtypes.copy_csv import read_copy_csv
from headrace.pgtypes.registry import builtin_type, conversion_for
from headrace.schema import PgType
from headrace.testing import PostgresServer

pytestmark = pytest.mark.matrix

SESSION = (
    "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c bytea_output=hex -c extra_float_digits=1"
    " -c client_encoding=UTF8"
)
CATALOG = """
    SELECT typname, nspname, typtype::text, CASE WHEN typlen = -1 THEN typelem ELSE 0 END::int, typbasetype::int,
           typtypmod, typdelim::text
    FROM pg_type JOIN pg_namespace n ON n.oid = typnamespace WHERE pg_type.oid = %s
"""


@dataclass(frozen=True)
class Answer:
    """What the server says about some values."""

    texts: pa.StringArray
    csv: bytes
    typmod: int


class Oracle:
    def __init__(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        self.connection = connection

    @property
    def version(self) -> int:
        return self.connection.info.server_version // 10_000

    def type(self, oid: int) -> PgType:
        known = builtin_type(oid)
        if known is not None:
            return known
        row = self.connection.execute(CATALOG, (oid,)).fetchone()
        assert row is not None
        name, schema, kind, element, base, typmod, delimiter = row
        return PgType(
            oid, name, schema, kind,
            self.type(element) if element else None, self.type(base) if base else None, typmod, delimiter,
        )  # fmt: skip

    def type_named(self, name: str) -> PgType:
        row = self.connection.execute("SELECT %s::regtype::oid::int", (name,)).fetchone()
        assert row is not None
        return self.type(row[0])

    def ask(self, sql_type: str, values: Sequence[str | None]) -> Answer:
        query = f"SELECT x::{sql_type} AS v FROM unnest($1::text[]) WITH ORDINALITY AS u(x, i) ORDER BY i"
        parameters = [_text_array(values)]
        text, typmod = self._column(query, parameters)
        csv = self.copy(sql.SQL(query.replace("$1", "{}")).format(sql.Literal(list(values))))
        texts = pa.array([None if value is None else value.decode() for value in text], pa.string())
        return Answer(texts, csv, typmod)

    def copy(self, query: sql.Composable) -> bytes:
        with self.connection.cursor().copy(sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(query)) as rows:
            return b"".join(bytes(chunk) for chunk in rows)

    def _column(self, query: str, parameters: list[bytes]) -> tuple[list[bytes | None], int]:
        result = self.connection.pgconn.exec_params(query.encode(), parameters)
        assert result.status == psycopg.pq.ExecStatus.TUPLES_OK, result.error_message
        return [result.get_value(row, 0) for row in range(result.ntuples)], result.fmod(0)

    def loaded(self, sql_type: str, values: Sequence[str | None]) -> list[object]:
        query = f"SELECT x::{sql_type} FROM unnest(%s::text[]) WITH ORDINALITY AS u(x, i) ORDER BY i"
        return [row[0] for row in self.connection.execute(query, (list(values),))]


def _text_array(values: Sequence[str | None]) -> bytes:
    quoted = ("NULL" if v is None else '"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values)
    return ("{" + ",".join(quoted) + "}").encode()


@pytest.fixture(scope="module")
def oracle(postgres: PostgresServer) -> Iterator[Oracle]:
    with postgres.database() as info, psycopg.connect(info, autocommit=True, options=SESSION) as connection:
        for statement in SETUP:
            connection.execute(statement)
        yield Oracle(connection)


def _rejected(converted: Converted) -> dict[int, str]:
    if converted.rejected is None:
        return {}
    return dict(zip(converted.rejected.positions.to_pylist(), converted.rejected.texts.to_pylist(), strict=True))


def _assert_same(left: Converted, right: Converted) -> None:
    left.values.validate(full=True)
    assert left.values.type == right.values.type
    # Arrow finds NaN unequal to itself; printed, it is a value like any other.
    assert left.values.equals(right.values) or str(left.values.to_pylist()) == str(right.values.to_pylist())
    assert _rejected(left) == _rejected(right)


def _check_text_and_csv(conversion: Conversion, answer: Answer) -> Converted:
    from_text = conversion.from_text(answer.texts)
    from_text.values.validate(full=True)
    assert from_text.values.type == conversion.arrow_type
    rows = read_copy_csv(answer.csv, [("v", conversion)])
    _assert_same(Converted(rows.batch.column(0), rows.rejected.get("v")), from_text)
    texts = answer.texts.to_pylist()
    rejected = _rejected(from_text)
    assert all(texts[position] == text for position, text in rejected.items())
    nulls = {index for index, text in enumerate(texts) if text is None}
    assert {i for i, value in enumerate(from_text.values.to_pylist()) if value is None} == nulls | rejected.keys()
    return from_text


def _check(oracle: Oracle, case: Case, values: Sequence[str | None]) -> Converted:
    answer = oracle.ask(case.type, values)
    conversion = conversion_for(oracle.type_named(case.type), answer.typmod, case.options)
    from_text = _check_text_and_csv(conversion, answer)
    if case.normalise is not None:
        _check_against_psycopg(oracle, case, values, from_text)
    return from_text


def _check_against_psycopg(oracle: Oracle, case: Case, values: Sequence[str | None], converted: Converted) -> None:
    """psycopg cannot load what is rejected either, so it is asked for the rest."""
    assert case.normalise is not None
    theirs, ours = case.normalise
    rejected = _rejected(converted)
    kept = [value for index, value in enumerate(values) if index not in rejected]
    got = [value for index, value in enumerate(converted.values.to_pylist()) if index not in rejected]
    expected = [None if value is None else theirs(value) for value in oracle.loaded(case.type, kept)]
    assert str([None if value is None else ours(value) for value in got]) == str(expected)


def _ids(cases: Sequence[Case]) -> list[object]:
    return [pytest.param(case, id=case.id) for case in cases]


@pytest.mark.parametrize("case", _ids([*CASES, *ARRAY_CASES]))
def test_special_values(oracle: Oracle, case: Case) -> None:
    if oracle.version < case.since:
        with pytest.raises(psycopg.Error):
            oracle.loaded(case.type, case.special)
        return
    rejected = _rejected(_check(oracle, case, [*case.special, None]))
    assert sorted(case.special[position] for position in rejected) == sorted(case.rejected)


@pytest.mark.parametrize("case", _ids([case for case in [*CASES, *ARRAY_CASES] if case.since <= 14]))
def test_generated_values(oracle: Oracle, case: Case) -> None:
    @settings(
        max_examples=8, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )  # fmt: skip
    @given(st.lists(st.one_of(case.values, st.sampled_from([None, *case.special])), min_size=1, max_size=30))
    def run(values: list[str | None]) -> None:
        _check(oracle, case, values)

    run()


@pytest.mark.parametrize("case", _ids(TEXT_ONLY_CASES))
def test_types_without_an_arrow_type_keep_their_text(oracle: Oracle, case: Case) -> None:
    pg_type = oracle.type_named(case.type)
    conversion = conversion_for(pg_type)
    answer = oracle.ask(case.type, [*case.special, None])
    from_text = _check_text_and_csv(conversion, answer)
    assert from_text.rejected is None


def test_every_column_of_a_copy_keeps_its_place(oracle: Oracle) -> None:
    """All types side by side in one COPY, with rejected values in some of them."""
    cases = [case for case in CASES if case.since <= oracle.version]
    rows = [[case.special[row % len(case.special)] for case in cases] for row in range(12)]
    columns = sql.SQL(", ".join(f"(j ->> {i})::{case.type}" for i, case in enumerate(cases)))
    documents = sql.Literal([json.dumps(row) for row in rows])
    csv = oracle.copy(sql.SQL("SELECT {} FROM unnest({}::json[]) u(j)").format(columns, documents))
    answers = [oracle.ask(case.type, [row[index] for row in rows]) for index, case in enumerate(cases)]
    conversions = [
        conversion_for(oracle.type_named(case.type), answer.typmod, case.options)
        for case, answer in zip(cases, answers, strict=True)
    ]
    read = read_copy_csv(csv, [(case.id, conversion) for case, conversion in zip(cases, conversions, strict=True)])
    assert read.batch.num_rows == len(rows)
    for case, answer, conversion in zip(cases, answers, conversions, strict=True):
        column = Converted(read.batch.column(case.id), read.rejected.get(case.id))
        _assert_same(column, conversion.from_text(answer.texts))
    assert len(read.rejected) > 3
