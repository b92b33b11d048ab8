"""cli.local_checks: what keeps a pipeline from starting on this machine is found before it starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.local_checks import check_here
from headrace.config.pipeline import PipelineConfig
from headrace.postgres.preflight import Finding, Severity


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write everywhere: look as someone else, if root."""
    before = os.access

    def as_someone(path: Any, mode: int) -> bool:
        return before(path, mode) and bool(Path(path).stat().st_mode & 0o200)

    os.access = as_someone
    try:
        yield
    finally:
        os.access = before


def config(root: Path, **settings: Any) -> PipelineConfig:
    source = {"host": "h", "name": "n", "username": "u"}
    given = {"destination": {"kind": "null"}, "data_dir": root / "data", **settings}
    return PipelineConfig.model_validate({"id": 1, "publication_name": "p", "pg_connection": source, **given})


def errors(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.check, finding.message) for finding in findings if finding.severity is Severity.ERROR]


def test_a_machine_that_is_ready_and_nothing_is_made(tmp_path: Path) -> None:
    assert check_here(config(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_no_destination(tmp_path: Path) -> None:
    ((check, message),) = errors(check_here(config(tmp_path, destination=None)))
    assert check == "destination"
    assert "names no destination" in message


def test_a_package_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cli.local_checks.find_spec", lambda name: None if name == "pyroaring" else object())
    found = check_here(config(tmp_path, destination={"kind": "iceberg", "warehouse": str(tmp_path / "w")}))
    assert errors(found) == [("destination", "the destination iceberg needs Python packages: pyroaring")]
    assert found[0].remedy == "pip install 'headrace[iceberg]'"


def test_a_transform_that_is_not_there(tmp_path: Path) -> None:
    tables = {"public.a": {"transform": "os.path:join"}, "public.b": {"transform": "os.path:joyn"}}
    found = check_here(config(tmp_path, transforms={"tables": tables}))
    assert errors(found) == [("transforms", "the module os.path has no function joyn")]
    assert "module:function" in found[0].remedy


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    ((check, message),) = errors(check_here(config(tmp_path)))
    assert check == "java"
    assert "nowhere" in message


def test_a_cluster_without_authentication_and_encryption(tmp_path: Path) -> None:
    half = {"master": "spark://host:7077", "conf": {"spark.authenticate": "true"}}
    (found,) = [one for one in check_here(config(tmp_path, spark=half)) if one.severity is Severity.WARNING]
    assert "spark.network.crypto.enabled" in found.message
    assert "spark.authenticate" not in found.message
    whole = {**half, "conf": {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}}
    assert [one for one in check_here(config(tmp_path, spark=whole)) if one.severity is Severity.WARNING] == []


def test_directories_that_cannot_be_written_to(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    (tmp_path / "file").touch()
    iceberg = {"kind": "iceberg", "warehouse": f"file://{tmp_path}/file/w"}
    with without_privileges():
        found = check_here(
            config(
                tmp_path,
                data_dir=locked,
                spool={"uri": f"{locked}/spool"},
                store={"path": f"{locked}/x/store.db"},
                destination=iceberg,
            )
        )
    assert errors(found) == [
        ("directories", f"data_dir is {locked}, and this user may not write to it"),
        ("directories", f"store.path is {locked}/x, and this user may not write to {locked}"),
        ("directories", f"spool.uri is {locked}/spool, and this user may not write to {locked}"),
        ("directories", f"destination.warehouse is {tmp_path}/file/w, but {tmp_path}/file is a file"),
    ]


@pytest.mark.parametrize("prefix", ["", "sqlite:///", "file://"])
def test_a_catalog_whose_file_cannot_be_written(prefix: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    catalog = {"uri": f"{prefix}{tmp_path}/file/catalog.db"}
    found = check_here(config(tmp_path, destination={"kind": "iceberg", "warehouse": "s3://b/w", "catalog": catalog}))
    told = f"destination.catalog.uri is {tmp_path}/file, but {tmp_path}/file is a file"
    assert errors(found) == [("directories", told)]


def test_places_elsewhere_are_not_looked_for_here(tmp_path: Path) -> None:
    iceberg = {"kind": "iceberg", "warehouse": "s3://b/w", "catalog": {"type": "rest", "uri": "http://127.0.0.1:1"}}
    assert errors(check_here(config(tmp_path, spool={"uri": "s3://b/spool"}, destination=iceberg))) == []


def test_every_one_of_several_destinations_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    several = {
        "one": {"kind": "iceberg", "warehouse": str(tmp_path / "file")},
        "two": {"kind": "iceberg", "warehouse": str(tmp_path / "file" / "below")},
    }
    found = [message for check, message in errors(check_here(config(tmp_path, destination=None, destinations=several)))]
    assert any(message.startswith("destinations.one.warehouse is ") for message in found)
    assert any(message.startswith("destinations.two.warehouse is ") for message in found)


def test_transforms_that_need_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cli.local_checks.find_spec", lambda name: None if name == "duckdb" else object())
    plain, filtered = {"columns": {"exclude": ["x"]}}, {"filter": "id > 0"}
    assert check_here(config(tmp_path, transforms={"tables": {"public.t": plain}})) == []
    found = check_here(config(tmp_path, transforms={"tables": {"public.t": plain, "public.u": filtered}}))
    assert errors(found) == [("transforms", "filters and hashes of transforms need the Python package duckdb")]
    assert found[0].remedy == "pip install 'headrace[duckdb]'"
