"""postgres.connection against a real server: session settings, names, timeouts, keepalive, TLS, refusals."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from headrace.config.connection import PgConnectionConfig, TlsConfig, TlsMode
from headrace.errors import (
    SourceAuthenticationFailed,
    SourceConnectionFailed,
    SourceDataError,
    SourcePermissionDenied,
    SourceSchemaError,
)
from headrace.postgres.connection import (
    SESSION_SETTINGS,
    UNBOUNDED,
    application_name,
    connect,
    connect_replication,
    parse_conninfo,
)
from headrace.postgres.translation import translated_errors
from headrace.testing import PostgresServer

pytestmark = pytest.mark.matrix


@pytest.fixture
def config(conninfo: str) -> PgConnectionConfig:
    return parse_conninfo(conninfo)


def settings(connection: psycopg.Connection[tuple[object, ...]], *names: str) -> dict[str, object]:
    return {name: connection.execute("SELECT current_setting(%s)", (name,)).fetchone()[0] for name in names}  # type: ignore[index]


def test_session_settings_are_pinned_whatever_the_role_and_the_user_say(
    config: PgConnectionConfig, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    database = psycopg.sql.Identifier(config.name)
    for name, value in (("datestyle", "German"), ("timezone", "Asia/Tokyo"), ("bytea_output", "escape")):
        connection.execute(
            psycopg.sql.SQL("ALTER DATABASE {} SET {} = {}").format(database, psycopg.sql.SQL(name), value)
        )
    own = config.model_copy(update={"parameters": {"options": "-c timezone=Europe/Vienna -c work_mem=5MB"}})
    with connect(own, "test") as session:
        got = settings(session, *SESSION_SETTINGS, "work_mem")
    assert str(got.pop("datestyle")).startswith("ISO, ")
    expected = {name: value for name, value in SESSION_SETTINGS.items() if name != "datestyle"}
    assert got == {**expected, "work_mem": "5MB"}


def test_sql_connections_are_bounded_and_long_ones_are_not(config: PgConnectionConfig) -> None:
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    with connect(config, "test") as bounded, connect(config, "test", timeouts=UNBOUNDED) as unbounded:
        assert settings(bounded, *names) == dict(zip(names, ("30s", "10s", "1min"), strict=True))
        assert set(settings(unbounded, *names).values()) == {"0"}
        assert bounded.autocommit


def test_application_name_tells_role_and_pipeline(config: PgConnectionConfig) -> None:
    with connect(config, "copy", pipeline=42) as session:
        assert settings(session, "application_name") == {"application_name": "headrace_copy_42"}


@pytest.mark.parametrize("pipeline", ["x" * 100, "é" * 60])
def test_application_name_is_cut_at_63_bytes_between_characters(config: PgConnectionConfig, pipeline: str) -> None:
    name = application_name("copy", pipeline)
    assert len(name.encode()) in (62, 63)
    assert f"headrace_copy_{pipeline}".startswith(name)


def test_keepalive_reaches_the_socket(config: PgConnectionConfig) -> None:
    import socket

    with connect(config, "test") as session, socket.socket(fileno=session.fileno()) as raw:
        options = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT]
        got = [raw.getsockopt(socket.IPPROTO_TCP, option) for option in options]
        raw.detach()
    assert got == [30, 10, 3, 60_000]


def test_replication_connection_speaks_the_walsender_protocol(config: PgConnectionConfig) -> None:
    with connect_replication(config, "receiver", pipeline=7) as walsender:
        result = walsender.pgconn.exec_(b"IDENTIFY_SYSTEM")
        assert result.status == psycopg.pq.ExecStatus.TUPLES_OK
        assert result.get_value(0, 3) == config.name.encode()
        with connect(config, "test") as session:
            row = session.execute(
                "SELECT application_name FROM pg_stat_activity WHERE pid = %s", (walsender.info.backend_pid,)
            ).fetchone()
        assert row == ("headrace_receiver_7",)
        assert walsender.pgconn.exec_(b"SHOW statement_timeout").get_value(0, 0) == b"0"
        assert walsender.pgconn.exec_(b"SHOW timezone").get_value(0, 0) == b"UTC"


def test_wrong_password_is_an_authentication_failure_that_does_not_show_it(config: PgConnectionConfig) -> None:
    wrong = config.model_copy(update={"password": SecretStr("wr0ng-password")})
    with pytest.raises(SourceAuthenticationFailed) as caught:
        connect(wrong, "test")
    error = pickle.loads(pickle.dumps(caught.value))
    assert "pg_hba.conf" in error.hint
    assert "wr0ng-password" not in f"{error} {error!r} {caught.value.__cause__}"


def test_no_password_is_an_authentication_failure(config: PgConnectionConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    with pytest.raises(SourceAuthenticationFailed):
        connect(config.model_copy(update={"password": None}), "test")


def test_password_from_file_and_from_environment(
    config: PgConnectionConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config.password is not None
    path = tmp_path / "password"
    path.write_text(config.password.get_secret_value() + "\n")
    with connect(config.model_copy(update={"password": None, "password_file": path}), "test") as session:
        assert session.execute("SELECT 1").fetchone() == (1,)
    monkeypatch.setenv("PGPASSWORD", config.password.get_secret_value())
    with connect(config.model_copy(update={"password": None}), "test") as session:
        assert session.execute("SELECT 1").fetchone() == (1,)


def test_unknown_database_closed_port_and_missing_privilege(
    config: PgConnectionConfig, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    with pytest.raises(SourceSchemaError, match="does not exist"):
        connect(config.model_copy(update={"name": "nosuch"}), "test")
    with pytest.raises(SourceConnectionFailed):
        connect(config.model_copy(update={"port": 1}), "test")
    role = f"plain_{config.name}"
    connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'p'")
    try:
        plain = config.model_copy(update={"username": role, "password": SecretStr("p")})
        with pytest.raises(SourcePermissionDenied):
            connect_replication(plain, "test")
    finally:
        connection.execute(f"DROP ROLE {role}")


def test_a_full_server_is_a_connection_failure_even_with_the_right_password(
    config: PgConnectionConfig, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    role = f"crowded_{config.name}"
    connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'p' CONNECTION LIMIT 0")
    try:
        with pytest.raises(SourceConnectionFailed, match="too many connections"):
            connect(config.model_copy(update={"username": role, "password": SecretStr("p")}), "test")
    finally:
        connection.execute(f"DROP ROLE {role}")


def test_a_data_error_never_shows_the_value(config: PgConnectionConfig) -> None:
    with connect(config, "test") as session:
        session.execute("CREATE TABLE public.t (i int PRIMARY KEY)")
        with pytest.raises(SourceDataError) as caught, translated_errors():
            session.execute("SELECT 'row-value'::int")
        assert "row-value" not in str(caught.value)
        with pytest.raises(SourceDataError, match=r"public\.t\.t_pkey") as caught, translated_errors():
            session.execute("INSERT INTO public.t VALUES (4711), (4711)")
        assert "4711" not in str(caught.value)
        assert caught.value.__cause__ is None


def openssl(*arguments: str, cwd: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


def authority(directory: Path) -> Path:
    """A new certificate authority: its directory with ca.crt and ca.key."""
    directory.mkdir()
    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "2",
        "-subj", "/CN=headrace test authority", cwd=directory,
    )  # fmt: skip
    return directory


def certificate(ca: Path, host: str) -> tuple[str, str]:
    """A server certificate for `host`: certificate and key as PEM text."""
    subject = ["-subj", f"/CN={host}"]
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "s.key", "-out", "s.csr", *subject, cwd=ca)
    (ca / "san").write_text(f"subjectAltName=DNS:{host}\n")
    openssl(
        "x509", "-req", "-in", "s.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", "s.crt",
        "-days", "2", "-extfile", "san", cwd=ca,
    )  # fmt: skip
    return (ca / "s.crt").read_text(), (ca / "s.key").read_text()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PgConnectionConfig, str]]:
    """A server whose certificate is for `db.headrace.test`, and the authority's certificate."""
    ca = authority(tmp_path_factory.mktemp("tls") / "ca")
    crt, key = certificate(ca, "db.headrace.test")
    with PostgresServer() as server:
        for name, text in (("server.crt", crt), ("server.key", key)):
            path = server.data / name
            path.write_text(text)
            path.chmod(0o600)
            server._own(path)
        with psycopg.connect(server.conninfo(), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET ssl = on")
        server.restart()
        # host is what is verified, hostaddr what is dialled.
        named = make_conninfo(server.conninfo(), host="db.headrace.test", hostaddr="127.0.0.1")
        yield parse_conninfo(named), (ca / "ca.crt").read_text()


def encrypted(config: PgConnectionConfig) -> bool:
    with connect(config, "test") as session:
        row = session.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
    assert row is not None
    return bool(row[0])


def with_tls(config: PgConnectionConfig, mode: TlsMode, certs: str | None = None, **more: object) -> PgConnectionConfig:
    return config.model_copy(update={"tls": TlsConfig(mode=mode, trusted_root_certs=certs), **more})


def test_modes_without_verification(tls: tuple[PgConnectionConfig, str]) -> None:
    config, _ = tls
    got = {mode: encrypted(with_tls(config, mode)) for mode in (TlsMode.DISABLE, TlsMode.PREFER, TlsMode.REQUIRE)}
    assert got == {TlsMode.DISABLE: False, TlsMode.PREFER: True, TlsMode.REQUIRE: True}


def test_verify_full_with_pem_text_and_with_a_file(tls: tuple[PgConnectionConfig, str], tmp_path: Path) -> None:
    config, pem = tls
    path = tmp_path / "ca.crt"
    path.write_text(pem)
    assert encrypted(with_tls(config, TlsMode.VERIFY_FULL, pem))
    assert encrypted(with_tls(config, TlsMode.VERIFY_FULL, str(path)))
    with connect_replication(with_tls(config, TlsMode.VERIFY_FULL, pem), "test") as walsender:
        assert walsender.pgconn.ssl_in_use


def test_verify_full_refuses_another_name_and_verify_ca_does_not(tls: tuple[PgConnectionConfig, str]) -> None:
    config, pem = tls
    with pytest.raises(SourceConnectionFailed, match="does not match host name"):
        connect(with_tls(config, TlsMode.VERIFY_FULL, pem, host="other.headrace.test"), "test")
    assert encrypted(with_tls(config, TlsMode.VERIFY_CA, pem, host="other.headrace.test"))


def test_an_unknown_authority_is_refused(tls: tuple[PgConnectionConfig, str], tmp_path: Path) -> None:
    config, _ = tls
    stranger = (authority(tmp_path / "stranger") / "ca.crt").read_text()
    for mode in (TlsMode.VERIFY_CA, TlsMode.VERIFY_FULL):
        with pytest.raises(SourceConnectionFailed, match="certificate verify failed"):
            connect(with_tls(config, mode, stranger), "test")


def test_required_tls_fails_on_a_server_without_it(conninfo: str) -> None:
    assert conninfo_to_dict(conninfo)["host"] == "127.0.0.1"
    with pytest.raises(SourceConnectionFailed, match="does not support SSL"):
        connect(with_tls(parse_conninfo(conninfo), TlsMode.REQUIRE), "test")
