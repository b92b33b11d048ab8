"""postgres.conninfo: strings in, parameters out, no secret in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from headrace.config.connection import PgConnectionConfig, TlsMode
from headrace.errors import ConfigError
from headrace.postgres.conninfo import libpq_parameters, parse_conninfo

SECRET = "do-not-show-me"


@pytest.fixture(autouse=True)
def _no_libpq_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "PGHOST",
        "PGPORT",
        "PGUSER",
        "PGDATABASE",
        "PGPASSWORD",
        "PGSSLMODE",
        "PGSERVICE",
        "PGCONNECT_TIMEOUT",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://replicator:{SECRET}@db.example.com:6543/shop?sslmode=verify-full&sslrootcert=/ca.pem&connect_timeout=3",
        f"host=db.example.com port=6543 dbname=shop user=replicator password={SECRET} sslmode=verify-full "
        "sslrootcert=/ca.pem connect_timeout=3",
    ],
)
def test_both_forms_say_the_same(text: str) -> None:
    it = parse_conninfo(text)
    assert (it.host, it.port, it.name, it.username) == ("db.example.com", 6543, "shop", "replicator")
    assert it.password == SecretStr(SECRET)
    assert (it.tls.mode, it.tls.trusted_root_certs, it.connect_timeout) == (TlsMode.VERIFY_FULL, "/ca.pem", 3)
    assert SECRET not in repr(it)


def test_what_is_left_out_comes_from_libpqs_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db")
    monkeypatch.setenv("PGUSER", "replicator")
    monkeypatch.setenv("PGSSLMODE", "require")
    monkeypatch.setenv("PGPASSWORD", SECRET)
    it = parse_conninfo("port=6543")
    assert (it.host, it.port, it.username, it.name, it.tls.mode) == (
        "db",
        6543,
        "replicator",
        "replicator",
        TlsMode.REQUIRE,
    )
    assert it.password is None


def test_without_a_host_it_is_localhost() -> None:
    assert parse_conninfo("user=a dbname=b").host == "localhost"


def test_keepalive_and_foreign_parameters_are_kept() -> None:
    it = parse_conninfo("host=db user=a dbname=b keepalives_idle=5 sslcert=/c.crt application_name=mine")
    assert (it.keepalive.idle, it.keepalive.interval) == (5, 10)
    assert it.parameters == {"sslcert": "/c.crt"}


@pytest.mark.parametrize(
    "text",
    [
        f"{SECRET}",
        f"host=db password='{SECRET}",
        f"postgresql://user:{SECRET}@[db/shop",
        f"postgresql://user:pass@db:{SECRET}/shop",
        f"host=db user=a dbname=b sslpassword={SECRET}",
        f"host=db user=a dbname=b password={SECRET} nosuch=1",
        f"host=a,b port=1,2 user=a dbname=b password={SECRET}",
        f"service=x password={SECRET}",
        f"postgresql://user:{SECRET}@db/shop?sslmode=sometimes",
    ],
)
def test_a_bad_string_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_conninfo(text)
    error = caught.value
    assert SECRET not in f"{error!r} {error} {error.detail} {error.hint} {error.__cause__!r}"


def test_two_passwords_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="both give a password"):
        parse_conninfo(f"host=db user=a password={SECRET}", password_file=tmp_path / "p")


def test_parameters_carry_keepalive_and_one_limit_for_a_dead_peer() -> None:
    parameters = libpq_parameters(PgConnectionConfig(host="db", hostaddr="10.0.0.1", name="shop", username="a"))
    assert parameters["hostaddr"] == "10.0.0.1"
    assert (parameters["keepalives_idle"], parameters["keepalives_interval"], parameters["keepalives_count"]) == (
        30,
        10,
        3,
    )
    assert parameters["tcp_user_timeout"] == 60_000
    assert "password" not in parameters


def test_pem_text_becomes_one_file_and_a_path_stays_a_path() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    it = PgConnectionConfig.model_validate(
        {"host": "db", "name": "shop", "username": "a", "tls": {"mode": "verify-full", "trusted_root_certs": pem}}
    )
    path = libpq_parameters(it)["sslrootcert"]
    assert Path(str(path)).read_text() == pem
    assert libpq_parameters(it)["sslrootcert"] == path
    other = it.model_copy(update={"tls": it.tls.model_copy(update={"trusted_root_certs": "/ca.pem"})})
    assert libpq_parameters(other)["sslrootcert"] == "/ca.pem"
