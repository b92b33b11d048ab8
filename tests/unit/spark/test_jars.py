"""Jars are verified before Spark gets them: one that is not the published file is refused, in the cache or fetched."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.destinations.delta.java import PACKAGES as DELTA
from headrace.destinations.iceberg.catalog import AWS, SQLITE
from headrace.destinations.iceberg.java import PACKAGES as ICEBERG
from headrace.errors import SparkUnavailable
from headrace.spark import jars
from headrace.spark.jars import ASKED_FOR, Jar, jar_settings, pinned_packages

PACKAGE, DEPENDENCY = "org.example:lake:1.0", "org.example:codec:2.1"
CONTENT = {"org.example_lake-1.0.jar": b"a lake" * 1000, "org.example_codec-2.1.jar": b"a codec"}


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache with the jars of one pinned package."""
    pins = tuple(
        Jar(coordinates, hashlib.sha256(content).hexdigest())
        for coordinates, content in zip((PACKAGE, DEPENDENCY), CONTENT.values(), strict=True)
    )
    monkeypatch.setattr(jars, "pinned_packages", lambda: {PACKAGE: pins})
    (tmp_path / "jars").mkdir()
    for name, content in CONTENT.items():
        (tmp_path / "jars" / name).write_bytes(content)
    return tmp_path


def settings(cache: Path, *packages: str, **conf: str) -> dict[str, str]:
    return jar_settings(packages, {"spark.jars.ivy": str(cache), **conf})


def files(cache: Path) -> str:
    return ",".join(str(cache / "jars" / name) for name in CONTENT)


def test_every_package_of_the_built_in_destinations_is_pinned() -> None:
    # After a change of a version: tools/jar_pins.py.
    assert set(pinned_packages()) == {*DELTA, *ICEBERG, AWS, SQLITE}
    for package, pins in pinned_packages().items():
        assert pins[0].coordinates == package
        assert all(len(bytes.fromhex(jar.sha256)) == hashlib.sha256().digest_size for jar in pins)
        assert len({jar.module for jar in pins}) == len(pins)


def test_jars_with_their_hash_go_to_spark_as_files(cache: Path) -> None:
    assert settings(cache, PACKAGE) == {
        "spark.jars": files(cache),
        "spark.jars.packages": "",
        ASKED_FOR: PACKAGE,
    }


@pytest.mark.parametrize("name", CONTENT)
def test_a_changed_jar_in_the_cache_is_refused(cache: Path, name: str) -> None:
    path = cache / "jars" / name
    changed = bytearray(path.read_bytes())
    changed[3] ^= 1
    path.write_bytes(changed)
    with pytest.raises(SparkUnavailable) as refused:
        settings(cache, PACKAGE)
    assert str(path) in str(refused.value)
    assert hashlib.sha256(changed).hexdigest() in str(refused.value)
    assert hashlib.sha256(CONTENT[name]).hexdigest() in str(refused.value)
    assert refused.value.hint.endswith(f": rm {path}")


def fetching(content: dict[str, bytes]) -> object:
    def fetch(wanted: Sequence[Jar], place: Path, _: object) -> Path:
        for jar in wanted:
            (place / jar.file_name).write_bytes(content[jar.file_name])
        return place

    return fetch


def test_a_removed_jar_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "jars" / "org.example_codec-2.1.jar").unlink()
    monkeypatch.setattr(jars, "fetch_jars", fetching({"org.example_codec-2.1.jar": b"a codec"}))
    assert settings(cache, PACKAGE)["spark.jars"] == files(cache)
    assert {path.name: path.read_bytes() for path in (cache / "jars").iterdir()} == CONTENT
    assert [path.name for path in cache.iterdir()] == ["jars"]


def test_a_repository_that_serves_another_file_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cache / "jars" / "org.example_codec-2.1.jar"
    path.unlink()
    monkeypatch.setattr(jars, "fetch_jars", fetching({path.name: b"not a codec"}))
    with pytest.raises(SparkUnavailable, match=f"another file for {DEPENDENCY}"):
        settings(cache, PACKAGE)
    assert not path.exists()


def test_packages_that_are_not_pinned_are_left_to_spark_without_a_second_version(cache: Path) -> None:
    found = settings(cache, "org.other:thing:3", PACKAGE, **{"spark.jars.excludes": "a:b", "spark.jars": "/my.jar"})
    assert found == {
        "spark.jars": f"/my.jar,{files(cache)}",
        "spark.jars.packages": "org.other:thing:3",
        "spark.jars.excludes": "a:b,org.example:codec,org.example:lake",
        ASKED_FOR: f"org.other:thing:3,{PACKAGE}",
    }
    assert settings(cache, "org.other:thing:3")["spark.jars.packages"] == "org.other:thing:3"
    assert settings(cache) == {}


def test_another_version_that_the_user_names_replaces_the_pinned_one(cache: Path) -> None:
    found = settings(cache, "org.example:lake:1.1", PACKAGE)
    assert found["spark.jars.packages"] == "org.example:lake:1.1"
    assert "spark.jars" not in found


def test_an_excluded_jar_is_not_needed(cache: Path) -> None:
    (cache / "jars" / "org.example_codec-2.1.jar").unlink()
    found = settings(cache, PACKAGE, **{"spark.jars.excludes": "org.example:codec"})
    assert found["spark.jars"] == str(cache / "jars" / "org.example_lake-1.0.jar")
