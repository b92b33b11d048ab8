"""A demo empties what is its own, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.demo.directory import MARKER, claimed
from headrace.errors import ConfigError


def test_a_new_directory_is_made_and_stays(tmp_path: Path) -> None:
    with claimed(tmp_path / "a" / "b") as directory:
        assert directory == tmp_path / "a" / "b"
        (directory / "warehouse").mkdir()
    assert (tmp_path / "a" / "b" / "warehouse").is_dir()


def test_what_an_earlier_demo_left_is_removed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").touch()
    with claimed(tmp_path / "demo") as directory:
        (directory / "warehouse").mkdir()
        (directory / "warehouse" / "file").touch()
        (directory / "headrace.log").touch()
        (directory / "link").symlink_to(elsewhere)
    with claimed(tmp_path / "demo") as directory:
        assert [entry.name for entry in directory.iterdir()] == [MARKER]
    assert (elsewhere / "mine").exists()


def test_a_directory_of_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="is not empty and not of an earlier demo") as caught, claimed(tmp_path):
        pytest.fail("entered")
    assert "--dir" in caught.value.hint
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is not a directory"), claimed(tmp_path / "file"):
        pytest.fail("entered")


def test_an_empty_directory_will_do(tmp_path: Path) -> None:
    with claimed(tmp_path) as directory:
        assert (directory / MARKER).read_text()


def test_two_demos_do_not_share_a_directory(tmp_path: Path) -> None:
    with claimed(tmp_path) as directory:
        (directory / "warehouse").mkdir()
        with pytest.raises(ConfigError, match="another demo runs in"), claimed(tmp_path):
            pytest.fail("entered")
        assert (directory / "warehouse").is_dir()
    with claimed(tmp_path):
        pass


@pytest.mark.parametrize("place", ["file/demo", "file/demo/below"])
def test_a_place_where_nothing_can_be_made(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot make the demo's directory") as caught, claimed(tmp_path / place):
        pass
    assert "--dir" in caught.value.hint
