"""Every command where something is wrong around it: it says what and what to do, and nothing else about it."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
import structlog

from commanding import PUBLICATION, invoke, write_config
from headrace.errors import RetryPolicy
from headrace.postgres.connection import parse_conninfo
from headrace.stores import SqliteStore
from headrace.table_state import State, TableState
from headrace.testing.postgres import PASSWORD

Connection = psycopg.Connection[Any]

COMMANDS = {
    "check": "check FILE",
    "run": "run FILE --no-live",
    "copy": "copy FILE --no-live",
    "status": "status FILE",
    "slot drop": "slot drop FILE --yes",
    "resync": "resync FILE t",
    "rollback": "rollback FILE t",
    "source install": "source install FILE",
    "source uninstall": "source uninstall FILE --yes",
    "init": "init NEW --source SOURCE --publication PUBLICATION --destination null",
    "tail": "tail SOURCE --publication PUBLICATION",
    "replay": "replay LOG FILE",
}
WRONG_PASSWORD = "hunter2"


class Told(NamedTuple):
    code: int
    what: str
    remedy: str


PASSWORD_REFUSED = Told(3, "password authentication failed", "check user, password, database and pg_hba.conf")
NO_HOST = Told(3, "failed to resolve host 'no.invalid'", "check how the host is spelled")
NO_PUBLICATION = Told(4, 'publication "nosuch" does not exist', 'CREATE PUBLICATION "nosuch"')
TYPO = Told(2, "pipeline.yaml:", "did you mean publication_name?")
NO_JAVA = Told(4, "JAVA_HOME is ROOT, but there is no bin/java in it", "install Java 17 or 21")
# A table that cannot be updated is copied all the same: it is said, and what ends the command is that there is no Java.
KEYLESS = Told(4, "public.keyless has no replica identity", 'ALTER TABLE \\"public\\".\\"keyless\\" ADD PRIMARY KEY')
READ_ONLY = Told(2, "data_dir is ROOT/data, and this user may not write to ROOT", "chown or chmod ROOT")
STORE_READ_ONLY = Told(3, "ROOT/data/pipeline-1/store.db", "make the file and its directory writable")

CASES = {
    "password": {
        "check": PASSWORD_REFUSED,
        "run": PASSWORD_REFUSED,
        "copy": PASSWORD_REFUSED,
        "status": PASSWORD_REFUSED,
        "slot drop": PASSWORD_REFUSED,
        # Of a table that was copied once, the store would know the name.
        "resync": PASSWORD_REFUSED._replace(code=2),
        "rollback": PASSWORD_REFUSED._replace(code=2),
        "source install": PASSWORD_REFUSED,
        "source uninstall": PASSWORD_REFUSED,
        # The file is written all the same.
        "init": PASSWORD_REFUSED._replace(code=0),
        "tail": PASSWORD_REFUSED,
    },
    "host": {
        "check": NO_HOST,
        "run": NO_HOST,
        "copy": NO_HOST,
        "status": NO_HOST,
        "slot drop": NO_HOST,
        "resync": NO_HOST._replace(code=2),
        "rollback": NO_HOST._replace(code=2),
        "source install": NO_HOST,
        "source uninstall": NO_HOST,
        "init": NO_HOST._replace(code=0),
        "tail": NO_HOST,
    },
    "publication": {
        "check": NO_PUBLICATION._replace(code=1),
        "run": NO_PUBLICATION,
        "copy": NO_PUBLICATION,
        "status": NO_PUBLICATION._replace(code=1),
        "resync": NO_PUBLICATION._replace(code=2),
        "rollback": NO_PUBLICATION._replace(code=2),
        "init": NO_PUBLICATION._replace(code=0, what="publication nosuch does not exist"),
        "tail": NO_PUBLICATION._replace(code=2),
    },
    "keyless table": {
        "check": KEYLESS._replace(code=1, remedy='ALTER TABLE "public"."keyless" ADD PRIMARY KEY'),
        "run": KEYLESS,
        "copy": KEYLESS,
    },
    "typo": dict.fromkeys(COMMANDS.keys() - {"init", "tail"}, TYPO),
    "read-only directory": {
        "check": Told(1, "data_dir is ROOT/data, and this user may not write to ROOT", "chown or chmod ROOT"),
        "run": READ_ONLY,
        "copy": READ_ONLY,
        "init": Told(2, "this user may not write to ROOT", "give a path elsewhere, or chmod it"),
        "status": STORE_READ_ONLY,
        "resync": STORE_READ_ONLY,
        "rollback": STORE_READ_ONLY,
    },
    "no Java": {"check": NO_JAVA._replace(code=1), "run": NO_JAVA, "copy": NO_JAVA},
}


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("situation", "command"), [(situation, command) for situation, told in CASES.items() for command in told]
)
def test_what_is_wrong_and_what_to_do_is_told(
    conninfo: str, connection: Connection, tmp_path: Path, situation: str, command: str
) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION pub FOR TABLE t")
    file = write_config(tmp_path / "pipeline.yaml", conninfo)
    if command in ("status", "resync", "rollback"):
        _keep_state(tmp_path / "data" / "pipeline-1", connection)
    at = parse_conninfo(conninfo)
    host, publication, environment = str(at.host), PUBLICATION, {}
    if situation == "password":
        environment = {"PGPASSWORD": WRONG_PASSWORD}
    elif situation == "host":
        host = environment["HEADRACE__PG_CONNECTION__HOST"] = "no.invalid"
    elif situation == "publication":
        publication = environment["HEADRACE__PUBLICATION_NAME"] = "nosuch"
    elif situation == "keyless table":
        connection.execute("CREATE TABLE keyless (id int); ALTER PUBLICATION pub ADD TABLE keyless")
    elif situation == "typo":
        file.write_text(file.read_text().replace("publication_name", "publicaton_name"))
    words = {
        "FILE": file,
        "NEW": tmp_path / "new.yaml",
        "LOG": tmp_path / "log",
        "SOURCE": f"host={host} port={at.port} user={at.username} dbname={at.name}",
        "PUBLICATION": publication,
    }
    arguments = [str(words.get(word, word)) for word in COMMANDS[command].split()]
    if situation == "read-only directory":
        place = tmp_path / "data" / "pipeline-1"
        code, said = _without_rights(place if place.exists() else tmp_path, arguments)
    elif command in ("run", "copy") and situation in ("keyless table", "no Java"):
        code, said = _alone(arguments, JAVA_HOME=str(tmp_path))
    else:
        java = {"JAVA_HOME": str(tmp_path)} if situation == "no Java" else {}
        result = invoke(*arguments, **environment, **java)
        code, said = result.exit_code, result.stdout + result.stderr
    told = CASES[situation][command]
    assert code == told.code, said
    # `check` has a table.
    plain = " ".join(said.replace("│", " ").split())
    assert told.what.replace("ROOT", str(tmp_path)) in plain
    assert told.remedy.replace("ROOT", str(tmp_path)) in plain
    assert not {word for word in ("Traceback", PASSWORD, WRONG_PASSWORD) if word in said}


def _keep_state(place: Path, connection: Connection) -> None:
    """The store of a pipeline that ran before, and in which the table failed before it was copied."""
    row = connection.execute("SELECT 't'::regclass::oid::int8").fetchone()
    assert row is not None
    place.mkdir(parents=True)
    with closing(SqliteStore(place / "store.db", 1)) as store:
        store.update_table_states({row[0]: TableState(State.INIT)})
        failed = TableState(State.ERRORED, None, "no such type", "give it one", RetryPolicy.MANUAL)
        store.update_table_states({row[0]: failed})


def _without_rights(directory: Path, arguments: list[str]) -> tuple[int, str]:
    directory.chmod(0o555)
    try:
        return _alone(arguments)
    finally:
        directory.chmod(0o755)


def _alone(arguments: list[str], **environment: str) -> tuple[int, str]:
    """A process of its own, which has no Spark yet, and to which permissions apply though it be root's."""
    result = subprocess.run(
        [sys.executable, "-c", "from headrace.cli.main import app; app()", *arguments],
        capture_output=True, text=True, check=False, preexec_fn=_bind_to_permissions,
        env={**os.environ, "COLUMNS": "900", "TERM": "dumb", "NO_COLOR": "1", "PGPASSWORD": PASSWORD, **environment},
    )  # fmt: skip
    return result.returncode, result.stdout + result.stderr


_LIBC = ctypes.CDLL(None)
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1


def _bind_to_permissions() -> None:
    # Refused to others than root, who have no need of it.
    _LIBC.prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)
