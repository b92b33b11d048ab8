"""From the settings of a catalog to the properties and jars that Iceberg needs for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

from headrace.config.iceberg import IcebergConfig
from headrace.destinations.iceberg.catalog import Catalog, catalog_packages, catalog_properties
from headrace.destinations.iceberg.java import Java
from headrace.errors import ConfigError

RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
AWS = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
S3_FILES = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
IMPLEMENTATIONS = {
    "sqlite": "org.apache.iceberg.jdbc.JdbcCatalog",
    "rest": "org.apache.iceberg.rest.RESTCatalog",
    "glue": "org.apache.iceberg.aws.glue.GlueCatalog",
    "hive": "org.apache.iceberg.hive.HiveCatalog",
}


def _config(warehouse: str, **catalog: Any) -> IcebergConfig:
    return IcebergConfig.model_validate({"warehouse": warehouse, "catalog": catalog})


@pytest.mark.parametrize(
    ("warehouse", "catalog", "packages", "own"),
    [
        ("s3://lake/shop", {"type": "rest", "uri": "http://c"}, (RUNTIME, AWS), {"uri": "http://c", **S3_FILES}),
        ("/lake", {"type": "rest", "uri": "http://c"}, (RUNTIME,), {"uri": "http://c"}),
        ("s3a://lake/shop", {"type": "glue"}, (RUNTIME, AWS), S3_FILES),
        # Glue's client is in AWS's jar, wherever the files are.
        ("/lake", {"type": "glue"}, (RUNTIME, AWS), {}),
        ("hdfs://n/lake", {"type": "hive", "uri": "thrift://h:9083"}, (RUNTIME,), {"uri": "thrift://h:9083"}),
        ("s3://lake", {"type": "hive", "uri": "thrift://h:1"}, (RUNTIME, AWS), {"uri": "thrift://h:1", **S3_FILES}),
    ],
)
def test_servers(warehouse: str, catalog: dict[str, str], packages: tuple[str, ...], own: dict[str, str]) -> None:
    config = _config(warehouse, **catalog)
    assert catalog_packages(config) == packages
    assert catalog_properties(config) == {
        "catalog-impl": IMPLEMENTATIONS[catalog["type"]],
        "warehouse": f"file://{warehouse}" if warehouse.startswith("/") else warehouse,
        "cache-enabled": "false",
        **own,
    }


@pytest.mark.parametrize(
    "given", [{}, {"uri": "{}/other.db"}, {"uri": "sqlite:///{}/other.db"}, {"uri": "file://{}/other.db"}]
)
def test_a_file(given: dict[str, str], tmp_path: Path) -> None:
    config = _config(str(tmp_path), **{name: text.format(tmp_path) for name, text in given.items()})
    assert catalog_packages(config) == (RUNTIME, SQLITE)
    properties = catalog_properties(config)
    file, _, options = properties.pop("uri").partition("?")
    assert file == f"jdbc:sqlite:{tmp_path}/{'other' if given else 'catalog'}.db"
    # Readers may hold the file; writers take turns.
    assert {"busy_timeout=60000", "transaction_mode=IMMEDIATE"} <= set(options.split("&"))
    assert properties == {
        "catalog-impl": IMPLEMENTATIONS["sqlite"],
        "warehouse": f"file://{tmp_path}",
        "cache-enabled": "false",
        "jdbc.schema-version": "V1",
    }


@pytest.mark.parametrize("given", ["{}", "file:{}", "file://{}"])
def test_no_sign_of_a_path_is_encoded(given: str, tmp_path: Path) -> None:
    directory = tmp_path / "my läke 100%"
    properties = catalog_properties(_config(given.format(directory)))
    assert properties["warehouse"] == f"file://{directory}"
    assert properties["uri"].startswith(f"jdbc:sqlite:{directory}/catalog.db?")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"warehouse": "c#/lake"}, "warehouse\n.*must have no #, ?, tab or line end in it"),
        ({"warehouse": "/lake?"}, "warehouse\n.*must have no #, ?, tab or line end in it"),
        ({"warehouse": "s3://lake/a#b"}, "warehouse\n.*must have no #, ?, tab or line end in it"),
        ({"warehouse": "/la\nke"}, "warehouse\n.*must have no #, ?, tab or line end in it"),
        ({"warehouse": "file://lake"}, "warehouse\n.*must have three slashes"),
        ({"warehouse": "/lake", "catalog": {"uri": "what?.db"}}, "catalog.uri must have no ? in its path"),
    ],
)
def test_places_that_not_all_readers_would_find(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told.replace("?", r"\?")):
        IcebergConfig.model_validate(settings)


def test_the_working_directory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c#").mkdir()
    monkeypatch.chdir(tmp_path / "c#")
    with pytest.raises(ValidationError, match="a relative path begins at the working directory"):
        _config("lake")


def test_a_file_beside_files_on_s3(tmp_path: Path) -> None:
    config = _config("s3://lake", uri=str(tmp_path / "c.db"))
    assert catalog_packages(config) == (RUNTIME, SQLITE, AWS)
    assert catalog_properties(config)["io-impl"] == S3_FILES["io-impl"]
    with pytest.raises(ConfigError, match="the catalog has no place") as raised:
        catalog_properties(_config("s3://lake"))
    assert "destination.catalog.uri" in str(raised.value.hint)


@pytest.mark.parametrize("kind", IMPLEMENTATIONS)
def test_further_properties_and_secrets_win(kind: str) -> None:
    given = {"io-impl": "my.own.FileIO", "uri": "mine", "glue.endpoint": "http://g"}
    config = _config("s3://lake", type=kind, uri="theirs", properties=given, secrets={"token": "hidden"})
    properties = catalog_properties(config)
    assert properties == {**properties, **given, "token": "hidden"}
    assert "hidden" not in repr(config)


@pytest.mark.parametrize("kind", ["rest", "hive"])
def test_a_server_has_an_address(kind: str) -> None:
    with pytest.raises(ValidationError, match=f"say where the {kind} catalog is"):
        _config("/lake", type=kind)


@pytest.mark.parametrize(
    ("catalog", "locked", "told", "setting"),
    [
        ({}, "lake", "destination.warehouse needs the directory {}, and this user may not", "destination.warehouse"),
        ({"uri": "at/c.db"}, "lake", "destination.warehouse needs the directory {}, and this", "destination.warehouse"),
        ({"uri": "at/c.db"}, "at", "destination.catalog.uri needs the directory {}, and", "destination.catalog.uri"),
        ({}, "lake/catalog.db", "the catalog is {}, and this user may not", "destination.catalog.uri"),
    ],
)
def test_places_that_may_not_be_written(
    catalog: dict[str, str],
    locked: str,
    told: str,
    setting: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Root may write everywhere: the system is asked, and here it says no."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / locked)
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake/catalog.db").touch()
    with pytest.raises(ConfigError, match=told.format(tmp_path / locked)) as raised:
        Catalog(cast("Java", None), _config("lake", **catalog))
    assert f"set {setting} to another" in str(raised.value.hint)


def test_a_warehouse_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"destination.warehouse needs the directory {tmp_path}/file/lake") as raised:
        Catalog(cast("Java", None), _config(str(tmp_path / "file/lake")))
    assert raised.value.detail == "Not a directory"
