"""How tasks reach an object store: Hadoop's settings in the words of their own client."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.destinations.delta.storage import storage_properties


class _Session:
    """As much of a session, and of its Hadoop's settings, as is looked at."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings
        self.spark = self._jsc = self

    def hadoopConfiguration(self) -> Any:
        return self

    def get(self, name: str) -> str | None:
        return self._settings.get(name)

    def getBoolean(self, name: str, default: bool) -> bool:
        return self._settings.get(name, str(default).lower()) == "true"


@pytest.fixture(autouse=True)
def _no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def _properties(warehouse: str = "s3a://b/w", **settings: str) -> dict[str, str]:
    session: Any = _Session({f"fs.s3a.{name.replace('_', '.')}": value for name, value in settings.items()})
    return storage_properties(session, warehouse)


def test_keys_and_an_endpoint_with_its_scheme() -> None:
    found = _properties(access_key="k", secret_key="s", session_token="t", endpoint="store:9000", endpoint_region="eu")
    assert found == {
        "s3.access-key-id": "k",
        "s3.secret-access-key": "s",
        "s3.session-token": "t",
        "s3.endpoint": "https://store:9000",
        "s3.region": "eu",
    }
    plain = _properties(endpoint="store:9000", connection_ssl_enabled="false")
    assert plain["s3.endpoint"] == "http://store:9000"
    assert _properties(endpoint="http://store")["s3.endpoint"] == "http://store"


def test_only_amazon_is_asked_for_the_region_of_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _properties(endpoint="http://store")["s3.region"] == "us-east-1"
    # Without one, the client looks it up.
    assert "s3.region" not in _properties()
    assert "s3.region" not in _properties(endpoint="https://s3.eu-west-1.amazonaws.com")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert _properties(endpoint="http://store")["s3.region"] == "eu-north-1"
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert _properties()["s3.region"] == "eu-west-1"
    assert _properties(endpoint_region="ap-south-1")["s3.region"] == "ap-south-1"


def test_other_stores_have_keys_of_their_own() -> None:
    assert _properties("gs://b/w", access_key="k") == {}
