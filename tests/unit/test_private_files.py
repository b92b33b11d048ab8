from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.private_files import (
    OWNER_ONLY,
    Access,
    create_file,
    group_access,
    make_directory,
    require_private,
    secure_directory,
)


@pytest.fixture(params=[0o000, 0o022, 0o777], ids="umask {:o}".format, autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_and_directories_are_their_owners(root: Path) -> None:
    make_directory(root / "a" / "b")
    create_file(root / "a" / "b" / "file")
    assert [mode(root / name) for name in ("a", "a/b", "a/b/file")] == [0o700, 0o700, 0o600]


def test_a_file_that_another_process_has_written_to_is_not_emptied(root: Path) -> None:
    path = root / "file"
    path.write_text("a store")
    path.chmod(0o644)
    create_file(path)
    assert (path.read_text(), mode(path)) == ("a store", 0o600)


def test_new_names_survive_a_power_cut(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    make_directory(root / "a" / "b" / "c")
    assert synced == [str(root), str(root / "a"), str(root / "a" / "b")]


def test_a_group_may_read_and_pass(root: Path) -> None:
    access = Access(os.getgid())
    make_directory(root / "a" / "b", access)
    assert [mode(root / name) for name in ("a", "a/b")] == [0o710, 0o750]
    assert (root / "a" / "b").stat().st_gid == os.getgid()


def test_what_is_there_is_tightened_on_demand(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a").chmod(0o755)
    make_directory(root / "a")
    assert mode(root / "a") == 0o755
    secure_directory(root / "a")
    assert mode(root / "a") == 0o700


def test_an_empty_directory_that_others_can_write_to_is_tightened(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a").chmod(0o777)
    secure_directory(root / "a")
    assert mode(root / "a") == 0o700


@pytest.mark.parametrize("wrong", [0o770, 0o757, 0o777])
def test_a_directory_with_files_that_others_can_write_to_is_refused(root: Path, wrong: int) -> None:
    make_directory(root / "it's")
    create_file(root / "it's" / "file")
    (root / "it's").chmod(wrong)
    with pytest.raises(ConfigError, match=f"mode is {wrong:04o}") as caught:
        secure_directory(root / "it's")
    assert mode(root / "it's") == wrong
    # The remedy works as printed.
    remedy = caught.value.hint.partition("then: ")[2]
    assert os.system(remedy) == 0
    secure_directory(root / "it's")
    assert mode(root / "it's") == 0o700


def test_a_directory_of_another_user_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_directory(root / "a")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4711)
    with pytest.raises(ConfigError, match="belongs to") as caught:
        require_private(root / "a")
    assert f"chown -R {os.getuid() + 4711} {root / 'a'}" in caught.value.hint


def test_groups_by_name_and_number() -> None:
    assert group_access(None) is OWNER_ONLY
    assert group_access("4711") == Access(4711)
    assert group_access("root") == Access(0)
    with pytest.raises(ConfigError, match="no such group"):
        group_access("nobody-has-this-group")


def test_a_file_in_the_way(root: Path) -> None:
    create_file(root / "a")
    with pytest.raises(NotADirectoryError):
        make_directory(root / "a")
