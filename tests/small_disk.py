"""A small disk of its own for a test: a tmpfs, which fills up and is enlarged."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["SmallDisk", "small_disk"]


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def resize(self, megabytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={megabytes}m", str(self.root)], check=True)

    def fill(self) -> None:
        """Take all the space that is left."""
        with (self.root / "filler").open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue


@contextmanager
def small_disk(root: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount a disk of this size at a directory. Skips the test where that is not permitted."""
    root.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)
