"""TLS of the copy's connections: the same modes, the same refusals as everywhere else."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from copying import published
from headrace.config.connection import PgConnectionConfig, TlsConfig, TlsMode
from headrace.errors import ConfigError, SourceConnectionFailed, SourceError, SourceSnapshotTooOld
from headrace.initial_copy.ranges import CopyRange
from headrace.initial_copy.reader import copy_columns, read_range
from headrace.postgres.connection import connect, parse_conninfo
from headrace.schema import ReplicatedTableSchema, TableName
from headrace.testing import PostgresServer

Source = tuple[PgConnectionConfig, ReplicatedTableSchema, str]


def openssl(*arguments: str, cwd: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


def authority(directory: Path) -> str:
    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "2",
        "-subj", "/CN=headrace test authority", cwd=directory,
    )  # fmt: skip
    return (directory / "ca.crt").read_text()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """A server whose certificate is for `db.headrace.test`, a view that tells of encryption, the authority."""
    ca = tmp_path_factory.mktemp("ca")
    pem = authority(ca)
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "s.key", "-out", "s.csr", "-subj", "/CN=db", cwd=ca)
    (ca / "san").write_text("subjectAltName=DNS:db.headrace.test\n")
    signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
    openssl("x509", "-req", "-in", "s.csr", *signing, "-out", "s.crt", cwd=ca)
    with PostgresServer() as server:
        for name in ("crt", "key"):
            path = server.data / f"server.{name}"
            path.write_text((ca / f"s.{name}").read_text())
            path.chmod(0o600)
            server._own(path)
        with psycopg.connect(server.conninfo(), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET ssl = on")
            admin.execute("CREATE VIEW v AS SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
            admin.execute("CREATE TABLE shape (ssl bool)")
            schema = published(admin, "shape")
        server.restart()
        named = make_conninfo(server.conninfo(), host="db.headrace.test", hostaddr="127.0.0.1")
        yield parse_conninfo(named), schema, pem


def encrypted(source: Source, mode: TlsMode, certs: str | None = None, **more: object) -> bool:
    config, schema, _ = source
    changed = config.model_copy(update={"tls": TlsConfig(mode=mode, trusted_root_certs=certs), **more})
    (batch,) = read_range(changed, CopyRange(TableName("public", "v"), ("ssl",)), copy_columns(schema))
    return bool(batch.rows.column(0)[0].as_py())


def test_modes_without_verification(source: Source) -> None:
    got = {mode: encrypted(source, mode) for mode in (TlsMode.DISABLE, TlsMode.PREFER, TlsMode.REQUIRE)}
    assert got == {TlsMode.DISABLE: False, TlsMode.PREFER: True, TlsMode.REQUIRE: True}


def test_verify_full_with_pem_text_and_with_a_file(source: Source, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(source[2])
    assert encrypted(source, TlsMode.VERIFY_FULL, source[2])
    assert encrypted(source, TlsMode.VERIFY_FULL, str(tmp_path / "ca.crt"))


def test_verify_full_refuses_another_name_and_verify_ca_does_not(source: Source) -> None:
    with pytest.raises(SourceConnectionFailed, match="certificate verify failed"):
        encrypted(source, TlsMode.VERIFY_FULL, source[2], host="other.headrace.test")
    # Without hostaddr, what is dialled is what is verified.
    with pytest.raises(SourceConnectionFailed, match="certificate verify failed"):
        encrypted(source, TlsMode.VERIFY_FULL, source[2], host="127.0.0.1", hostaddr=None)
    assert encrypted(source, TlsMode.VERIFY_CA, source[2], host="other.headrace.test")


@pytest.mark.parametrize("mode", [TlsMode.REQUIRE, TlsMode.VERIFY_CA, TlsMode.VERIFY_FULL])
def test_an_unknown_authority_is_refused(source: Source, tmp_path: Path, mode: TlsMode) -> None:
    with pytest.raises(SourceConnectionFailed, match="certificate verify failed"):
        encrypted(source, mode, authority(tmp_path))
    with pytest.raises(SourceConnectionFailed, match="certificate verify failed"):
        encrypted(source, mode, "system")


def test_nothing_to_trust_and_nothing_to_read(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="no certificates to trust"):
        encrypted(source, TlsMode.VERIFY_FULL)
    with pytest.raises(ConfigError, match="No such file"):
        encrypted(source, TlsMode.VERIFY_FULL, str(tmp_path / "missing.crt"))
    with pytest.raises(ConfigError, match="cannot be used"):
        encrypted(source, TlsMode.VERIFY_FULL, "-----BEGIN CERTIFICATE-----\nnot one")


BOUND = {"channel_binding": "require"}


def test_channel_binding_can_be_required(source: Source) -> None:
    assert encrypted(source, TlsMode.REQUIRE, parameters=BOUND)
    assert encrypted(source, TlsMode.VERIFY_FULL, source[2], parameters=BOUND)
    with pytest.raises(SourceError, match="channel binding"):
        encrypted(source, TlsMode.DISABLE, parameters=BOUND)


def test_a_copy_with_channel_binding_reads_all_rows_and_can_be_left(source: Source) -> None:
    config, _, _ = source
    bound = config.model_copy(update={"tls": TlsConfig(mode=TlsMode.REQUIRE), "parameters": BOUND})
    with connect(config, "test") as session:
        session.execute("CREATE TABLE public.many (id int PRIMARY KEY, v text)")
        session.execute("INSERT INTO public.many SELECT n, repeat('é\n\"', 50) FROM generate_series(1, 20000) n")
        schema = published(session, "many")
        expected = session.execute("SELECT id, v FROM public.many ORDER BY id").fetchall()
    part, columns = CopyRange(TableName("public", "many"), ("id", "v")), copy_columns(schema)
    batches = list(read_range(bound, part, columns, batch_bytes=64 << 10))
    rows = [tuple(row.values()) for batch in batches for row in batch.rows.to_pylist()]
    assert len(batches) > 10
    assert sorted(rows) == expected
    reading: Any = read_range(bound, part, columns, batch_bytes=64 << 10)
    next(reading)
    reading.close()
    assert [thread.name for thread in threading.enumerate() if thread.name == "headrace-copy"] == []
    with pytest.raises(SourceSnapshotTooOld):
        list(read_range(bound, part, columns, snapshot_name="00000003-0000001B-1"))
