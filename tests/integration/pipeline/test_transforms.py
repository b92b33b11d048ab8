"""Transforms end to end: what is excluded or masked is at no destination and in no file but the spool's."""

from __future__ import annotations

import hmac
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from structlog.testing import capture_logs

from headrace.config.destination import DestinationConfig
from headrace.destinations import MemoryDestination
from headrace.destinations.duckdb.staging import Staging
from headrace.destinations.stdout import StdoutDestination
from headrace.errors import ConfigError
from headrace.pipeline import Pipeline
from headrace.pipeline.build import build_destination, build_destinations
from headrace.stores import MemoryStore, SqliteStore
from lakehouse import read_table
from leaking import files_with
from pipelining import Piped, piped, pipeline_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = "hidden-from-everybody"
SHORT = MARK[:7]
"""What is left of it where a table's format cuts bounds."""
SALT = "pepper, of sixteen bytes"
TABLE = f"""
    CREATE TABLE people (id bigint PRIMARY KEY, email text, phone text, note text, region text, born date);
    INSERT INTO people SELECT i, 'mail-{MARK}-' || i, 'phone-{MARK}-' || i, 'note-{MARK}-' || i,
        CASE WHEN i % 2 = 0 THEN 'EU' ELSE 'US' END, '2000-01-01' FROM generate_series(1, 2000) i;
    CREATE PUBLICATION pub FOR TABLE people;
"""
TRANSFORMS = {
    "salt": SALT,
    "tables": {
        "public.people": {
            "columns": {
                "exclude": ["phone"],
                "mask": {"email": {"kind": "hash"}, "note": {"kind": "fixed", "value": "…"}},
            },
            "filter": "region = 'EU'",
        }
    },
}
SOURCE = "SELECT id, email, region, born FROM people WHERE region = 'EU' ORDER BY id"


def digest(value: str) -> str:
    return hmac.new(SALT.encode(), f"email\0{value}".encode(), "sha256").hexdigest()


def expected(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return [(key, digest(email), "…", region, born) for key, email, region, born in connection.execute(SOURCE)]


def change(connection: psycopg.Connection[Any], more: int = 4000) -> None:
    connection.execute(f"INSERT INTO people VALUES (9001, 'mail-{MARK}-new', '{MARK}', '{MARK}', 'EU', 'infinity')")
    connection.execute(f"INSERT INTO people VALUES (9002, 'mail-{MARK}-new', '{MARK}', '{MARK}', 'US', '2001-02-03')")
    connection.execute("UPDATE people SET region = 'US' WHERE id BETWEEN 2 AND 10")
    connection.execute("UPDATE people SET region = 'EU' WHERE id BETWEEN 101 AND 110")
    connection.execute(f"UPDATE people SET email = 'mail-{MARK}-other', note = '{MARK}' WHERE id = 200")
    connection.execute("DELETE FROM people WHERE id BETWEEN 300 AND 400")
    # Enough for tasks to read it, not the driver.
    connection.execute(
        f"INSERT INTO people SELECT i, 'm-{MARK}-' || i, repeat('{MARK}', 40), repeat('{MARK}', 40), 'EU', NULL "
        f"FROM generate_series(10001, {10000 + more}) i"
    )
    connection.execute("UPDATE people SET born = '2002-02-02' WHERE id = 9001")


def test_nothing_hidden_reaches_iceberg_or_the_store(
    conninfo: str, connection: psycopg.Connection[Any], spark: SparkSession, tmp_path: Path
) -> None:
    connection.execute(TABLE)
    warehouse = tmp_path / "warehouse"
    destination = DestinationConfig.model_validate({"kind": "iceberg", "warehouse": str(warehouse)})
    config = pipeline_config(conninfo, tmp_path / "data", destination=destination, transforms=TRANSFORMS)
    store = SqliteStore(tmp_path / "store.db", config.id)
    columns = ["id", "email", "note", "region", "born"]

    def rows() -> list[tuple[Any, ...]]:
        found = read_table(warehouse, "public.people").sort_by("id").select(columns).to_pydict()
        return list(zip(*found.values(), strict=True))

    with piped(config, store, build_destination(config), spark) as pipeline:
        pipeline.until_ready()
        assert rows() == expected(connection)
        change(connection)
        pipeline.until_applied(connection)
        assert rows() == expected(connection)
    connection.execute("ALTER TABLE people RENAME COLUMN phone TO mobile; ALTER TABLE people ADD COLUMN extra int")
    connection.execute(f"INSERT INTO people VALUES (9100, 'mail-{MARK}', '{MARK}', '{MARK}', 'EU', NULL, 7)")
    # The setting names a column that is not there: nobody may guess which one was meant.
    with pytest.raises(ConfigError, match="names phone"), piped(config, store, build_destination(config), spark) as p:
        p.until_ready()
    transforms = {
        "salt": SALT,
        "tables": {
            "public.people": {
                **TRANSFORMS["tables"]["public.people"],  # type: ignore[index]
                "columns": {"exclude": ["mobile"], "mask": TRANSFORMS["tables"]["public.people"]["columns"]["mask"]},  # type: ignore[index]
            }
        },
    }
    config = pipeline_config(conninfo, tmp_path / "data", destination=destination, transforms=transforms)
    with piped(config, store, build_destination(config), spark) as pipeline:
        pipeline.until_applied(connection)
        assert rows() == expected(connection)
        shown = read_table(warehouse, "public.people")
        assert shown.column_names == [*columns, "extra"]
        assert dict(zip(*shown.select(["id", "extra"]).to_pydict().values(), strict=True))[9100] == 7
    store.close()
    assert files_with(SHORT, tmp_path) == []
    # And the search would find it: the spool, which no transform reaches, has it.
    spool = [file for file in tmp_path.rglob("*") if file.is_file() and "spool" in file.parts]
    assert any(MARK.encode() in file.read_bytes() for file in spool)


HOOKED = {
    **TRANSFORMS,
    "tables": {"public.people": {**TRANSFORMS["tables"]["public.people"], "transform": "shop_transforms:shown"}},  # type: ignore[index]
}


@pytest.fixture
def kept_staging(monkeypatch: pytest.MonkeyPatch) -> None:
    """What DuckDB's rows are staged in stays there, to be looked at."""
    monkeypatch.setattr(Staging, "discard", lambda *_: None)
    monkeypatch.setattr(Staging, "close", lambda _: None)


@pytest.mark.usefixtures("kept_staging")
@pytest.mark.parametrize("transforms", [TRANSFORMS, HOOKED], ids=["settings", "function"])
def test_nothing_hidden_reaches_any_file_line_or_log(
    conninfo: str,
    connection: psycopg.Connection[Any],
    spark: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    transforms: dict[str, Any],
) -> None:
    connection.execute(TABLE)
    # What rows older than the column show is in the table's definition.
    connection.execute(f"ALTER TABLE people ADD COLUMN hint text DEFAULT '{MARK}-hint', ADD COLUMN bio text")
    excluded = {**transforms["tables"]["public.people"]["columns"], "exclude": ["phone", "hint"]}
    people = {**transforms["tables"]["public.people"], "columns": excluded}
    out = tmp_path / "out"
    several = {
        "delta": {"kind": "delta", "warehouse": str(out / "delta")},
        "duck": {"kind": "duckdb", "database": str(out / "people.duckdb"), "staging": str(out / "staging")},
        "log": {"kind": "parquet", "location": str(out / "log")},
        "lines": {"kind": "stdout"},
    }
    given = {**transforms, "tables": {"public.people": people}}
    config = pipeline_config(conninfo, tmp_path / "data", destinations=several, transforms=given)
    lines = io.StringIO()
    destinations = {**build_destinations(config), "lines": StdoutDestination(lines, "json")}
    stores = {name: MemoryStore() for name in destinations}
    with capture_logs() as logs, Pipeline(config, stores, destinations, spark=spark) as pipeline:
        pipeline.start()
        running = Piped(pipeline)
        running.until(lambda: len(running.status.tables) == len(several))
        running.until_ready()
        change(connection, more=10)
        connection.execute(f"UPDATE people SET phone = '{MARK}', hint = '{MARK}' WHERE id BETWEEN 500 AND 600")
        # So much that tasks read it, and stage it in files.
        connection.execute(
            f"INSERT INTO people SELECT i, '{MARK}', '{MARK}', '{MARK}', 'EU', NULL, '{MARK}', repeat('shown ', 5000) "
            "FROM generate_series(20001, 20300) i"
        )
        running.until_applied(connection)
        status = str(running.status)
    pipeline.wait()
    assert files_with(SHORT, tmp_path) == []
    said = capfd.readouterr()
    assert SHORT not in "".join([lines.getvalue(), status, str(logs), said.out, said.err])
    # And the search would find it: what nobody hides is in files of all kinds, in lines and in the spool.
    kinds = {(file.relative_to(out).parts[0], file.suffix) for file in files_with("shown ", out)}
    assert kinds >= {("delta", ".parquet"), ("log", ".parquet"), ("people.duckdb", ".duckdb"), ("staging", ".arrow")}
    assert "shown " in lines.getvalue()
    spool = [file for file in tmp_path.rglob("*") if file.is_file() and "spool" in file.parts]
    assert any(SHORT.encode() in file.read_bytes() for file in spool)


def test_a_setting_for_a_column_that_is_not_there_stops_the_start(
    conninfo: str, connection: psycopg.Connection[Any], spark: SparkSession, tmp_path: Path
) -> None:
    connection.execute(TABLE)
    given = {"tables": {"public.people": {"columns": {"exclude": ["phome"]}}}}
    config = pipeline_config(conninfo, tmp_path / "data", transforms=given)
    destination = MemoryDestination()
    with pytest.raises(ConfigError, match="phome") as caught, piped(config, MemoryStore(), destination, spark) as it:
        it.until_ready()
    assert "did you mean phone?" in caught.value.hint
    assert destination.tables() == []
