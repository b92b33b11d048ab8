"""config.connection: fields, defaults, and that no secret shows."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from headrace.config.connection import KeepaliveConfig, PgConnectionConfig, TlsConfig, TlsMode
from headrace.errors import ConfigError

SECRET = "do-not-show-me"


def config(**more: object) -> PgConnectionConfig:
    return PgConnectionConfig.model_validate({"host": "db", "name": "shop", "username": "replicator", **more})


def test_defaults_are_those_of_postgres_and_of_a_minute_until_a_dead_peer_is_noticed() -> None:
    it = config()
    assert (it.port, it.tls.mode, it.hostaddr, it.password) == (5432, TlsMode.PREFER, None, None)
    assert it.keepalive == KeepaliveConfig(idle=30, interval=10, retries=3)
    assert it.connect_timeout == 10


def test_password_shows_in_no_rendering() -> None:
    it = config(password=SECRET)
    for text in (repr(it), str(it), str(it.model_dump()), it.model_dump_json()):
        assert SECRET not in text
    assert it.read_password() == SecretStr(SECRET)


def test_a_rejected_value_is_not_quoted() -> None:
    with pytest.raises(ValidationError) as caught:
        config(password=[SECRET])
    assert SECRET not in str(caught.value)
    with pytest.raises(ValidationError) as caught:
        config(port=SECRET)
    assert SECRET not in str(caught.value)


def test_it_is_frozen_and_refuses_unknown_fields() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        config().port = 1  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        config(database="shop")


def test_it_pickles_with_its_password() -> None:
    it = config(password=SECRET)
    assert pickle.loads(pickle.dumps(it)) == it


def test_password_file_is_read_at_each_connect_and_loses_its_line_end(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(f" {SECRET} \n")
    it = config(password_file=path)
    assert it.read_password() == SecretStr(f" {SECRET} ")
    path.write_text("rotated\r\n")
    assert it.read_password() == SecretStr("rotated")


def test_password_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        config(password_file=tmp_path / "missing").read_password()
    path = tmp_path / "latin1"
    path.write_bytes(b"\xe9")
    with pytest.raises(ConfigError, match="not UTF-8"):
        config(password_file=path).read_password()


def test_two_passwords_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="not both"):
        config(password=SECRET, password_file=tmp_path / "password")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sslmode", "has a field of its own"),
        ("application_name", "is set by headrace"),
        ("sslpassword", "is a secret"),
    ],
)
def test_parameters_are_only_what_has_no_other_place(name: str, reason: str) -> None:
    assert config(parameters={"sslcert": "/client.crt"}).parameters == {"sslcert": "/client.crt"}
    with pytest.raises(ValidationError, match=f"{name} {reason}"):
        config(parameters={name: SECRET})


def test_one_host_only() -> None:
    with pytest.raises(ValidationError, match="one host"):
        config(host="a,b")


@pytest.mark.parametrize("model", [PgConnectionConfig, TlsConfig, KeepaliveConfig])
def test_every_field_is_described(model: type[BaseModel]) -> None:
    assert [name for name, field in model.model_fields.items() if not field.description] == []
