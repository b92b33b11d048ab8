"""telemetry.redaction: what is hidden, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretBytes, SecretStr

from headrace.config.connection import PgConnectionConfig
from headrace.lsn import Lsn
from headrace.schema import TableName
from headrace.table_state import State
from headrace.telemetry.redaction import HIDDEN, printable, redact, redact_text

SECRET = "do-not-show-me"


@pytest.mark.parametrize(
    "text",
    [
        f"host=db password={SECRET} user=u",
        f"password = '{SECRET} it\\'s {SECRET}' user=u",
        f"sslpassword={SECRET}",
        f"connecting to postgresql://u:{SECRET}@db:5432/shop",
        f"postgresql://u:{SECRET}@{SECRET}@db/shop",
        f"postgresql://db/shop?user=u&password={SECRET}&sslmode=require",
        f'{{"password": "{SECRET}", "port": 1}}',
        f"{{'aws_secret_access_key': '{SECRET}'}}",
        f"session_token={SECRET}",
    ],
)
def test_secrets_in_text_are_hidden(text: str) -> None:
    assert SECRET not in redact_text(text)
    assert HIDDEN in redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "pg_connection.password: is missing",
        'password authentication failed for user "u"',
        "password_file=/run/secrets/p",
        "http://127.0.0.1:9000/metrics",
        "postgresql://u@db:5432/shop",
        "found character that cannot start any token",
    ],
)
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert redact_text(text) == text


def test_what_surrounds_a_secret_stays() -> None:
    assert redact_text(f"host=db password={SECRET} user=u") == f"host=db password={HIDDEN} user=u"
    assert redact_text(f"postgresql://u:{SECRET}@db/shop") == f"postgresql://u:{HIDDEN}@db/shop"


@pytest.mark.parametrize("name", ["password", "Password", "sslpassword", "client_secret", "token", "s3_access_key_id"])
def test_values_of_telling_names_are_hidden_at_any_depth(name: str) -> None:
    event = redact(None, "info", {name: SECRET, "inner": [{name: SECRET}], "password_file": "/run/p"})
    assert SECRET not in str(event)
    assert event["password_file"] == "/run/p"


def test_secret_values_are_hidden_whatever_their_name() -> None:
    connection = PgConnectionConfig(host="h", name="n", username="u", password=SecretStr(SECRET))
    values: list[Any] = [SecretStr(SECRET), (SecretBytes(SECRET.encode()),), {"x": SecretStr(SECRET)}, connection]
    assert SECRET not in str(redact(None, "info", {f"value{n}": value for n, value in enumerate(values)}))


def test_values_become_what_json_knows() -> None:
    assert printable(
        {"lsn": Lsn.parse("16/B374D848"), "table": TableName("s", "t"), "state": State.READY, "n": [1, 2.5, True, None]}
    ) == {"lsn": "16/B374D848", "table": "s.t", "state": "ready", "n": [1, 2.5, True, None]}
    assert printable(ValueError(f"password={SECRET}")) == f"password={HIDDEN}"
