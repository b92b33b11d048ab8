"""postgres.version: what each major version can do."""

from __future__ import annotations

import pytest

from headrace.errors import SourceUnsupported
from headrace.postgres.version import ServerVersion


@pytest.mark.parametrize(
    ("number", "proto", "streaming"),
    [(140023, 2, "on"), (150019, 3, "on"), (160015, 4, "parallel"), (170011, 4, "parallel"), (180006, 4, "parallel")],
)
def test_protocol_by_version(number: int, proto: int, streaming: str) -> None:
    version = ServerVersion(number)
    assert (version.max_proto_version, version.streaming) == (proto, streaming)


@pytest.mark.parametrize(
    ("feature", "since"),
    [
        ("column_lists", 15),
        ("row_filters", 15),
        ("tables_in_schema", 15),
        ("decoding_on_standby", 16),
        ("failover_slots", 17),
        ("publish_generated_columns", 18),
    ],
)
def test_a_feature_starts_with_its_version(feature: str, since: int) -> None:
    has = [major for major in range(14, 20) if getattr(ServerVersion(major * 10_000), feature)]
    assert has == list(range(since, 20))


def test_text_and_requirement() -> None:
    version = ServerVersion(160015)
    assert (str(version), version.major) == ("16.15", 16)
    version.require(True, "a thing", 16)
    with pytest.raises(SourceUnsupported, match=r"a failover slot needs Postgres 17 or newer; this server is 16\.15"):
        version.require(version.failover_slots, "a failover slot", 17)
