"""Where the files lie: a local directory, or any fsspec file system. Pickled to the tasks that write there."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import fsspec

from ...errors import ConfigError, DestinationConnectionFailed, DestinationError, HeadraceError
from ...remedies import is_disk_full, make_room

__all__ = ["Storage"]

_ATOMIC_WRITES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "memory", "oss", "r2"})
"""Where a file is there as a whole or not at all; elsewhere it is written beside, and renamed."""


_CLIENTS = frozenset({"aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "requests", "s3fs", "urllib3"})
"""Packages behind fsspec whose own exceptions tell of lost connections; their messages name requests, never rows."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Paths are relative to the root, with `/`."""

    root: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def local(self) -> Path | None:
        """The directory, if it is one of this machine's."""
        if "://" in self.root and not self.root.startswith("file://"):
            return None
        return Path(self.root.removeprefix("file://")).absolute()

    def address(self, path: str) -> str:
        """How others find a file."""
        return str(self.local / path) if self.local is not None else f"{self.root.rstrip('/')}/{path}"

    def files(self, below: str = "") -> list[str]:
        """All files, at any depth."""
        with _told("list", self.address(below)):
            fs, root = self._opened()
            fs.invalidate_cache()
            found = fs.find(f"{root}/{below}".rstrip("/"))
        return [path.removeprefix(f"{root}/") for path in found]

    def directories(self) -> list[str]:
        """The names right below the root that have something below them."""
        with _told("list", self.root):
            fs, root = self._opened()
            fs.invalidate_cache()
            try:
                found = fs.ls(root, detail=True)
            except FileNotFoundError:
                return []
        return [item["name"].rstrip("/").rpartition("/")[2] for item in found if item["type"] == "directory"]

    def read(self, path: str) -> bytes | None:
        """A file's content; None: there is no such file."""
        with _told("read", self.address(path)):
            fs, root = self._opened()
            try:
                content: bytes = fs.cat_file(f"{root}/{path}")
            except FileNotFoundError:
                return None
        return content

    @contextlib.contextmanager
    def input(self, path: str) -> Iterator[BinaryIO]:
        """A file to read in."""
        with _told("read", self.address(path)):
            fs, root = self._opened()
            with fs.open(f"{root}/{path}", "rb") as file:
                yield file

    def publish(self, path: str, content: bytes) -> None:
        """Write a file so that it is there as a whole, and durable, or not at all."""
        with _told("write", self.address(path)):
            if self.local is not None:
                _publish_locally(self.local / path, content)
                return
            fs, root = self._opened()
            if self._atomic:
                fs.pipe_file(f"{root}/{path}", content)
                return
            staged = f"{root}/{path}.{uuid.uuid4().hex}"
            self._make_directory(fs, staged)
            fs.pipe_file(staged, content)
            fs.mv(staged, f"{root}/{path}")

    def create(self, path: str, content: bytes) -> bool:
        """Publish a file unless one of its name is there; whether it was not. One of several at once succeeds.

        Where the file system has no such operation, it is looked for first.
        """
        with _told("write", self.address(path)):
            if self.local is not None:
                return _created_locally(self.local / path, content)
            fs, root = self._opened()
            self._make_directory(fs, f"{root}/{path}")
            try:
                fs.pipe_file(f"{root}/{path}", content, mode="create")
            except FileExistsError:
                return False
            except TypeError:
                if fs.exists(f"{root}/{path}"):
                    return False
                fs.pipe_file(f"{root}/{path}", content)
            return True

    @contextlib.contextmanager
    def output(self, path: str) -> Iterator[BinaryIO]:
        """A new file to write to, which is durable in the end."""
        with _told("write", self.address(path)):
            if self.local is None:
                fs, root = self._opened()
                self._make_directory(fs, f"{root}/{path}")
                with fs.open(f"{root}/{path}", "wb") as file:
                    yield file
                return
            target = self.local / path
            _make_directories(target.parent)
            try:
                with target.open("wb") as file:
                    yield file
                    _sync(file)
            except BaseException:
                # Nothing refers to it yet, and a full disk needs the space.
                target.unlink(missing_ok=True)
                raise
            _sync_directory(target.parent)

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files, if they are there."""
        with _told("delete from", self.root):
            fs, root = self._opened()
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    fs.rm_file(f"{root}/{path}")

    @property
    def _atomic(self) -> bool:
        return self.root.partition("://")[0] in _ATOMIC_WRITES

    def _make_directory(self, fs: Any, file: str) -> None:
        # Object stores have none, and asking for one would look at the bucket, which not everybody may.
        if not self._atomic:
            fs.makedirs(file.rpartition("/")[0], exist_ok=True)

    def _opened(self) -> tuple[Any, str]:
        where = str(self.local) if self.local is not None else self.root.replace("s3a://", "s3://", 1)
        try:
            # Kept by fsspec: it gives the same object for the same arguments.
            fs, root = fsspec.url_to_fs(where, **({} if self.local is not None else self.options))
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"cannot use the location {self.root.partition('?')[0]}",
                detail=str(error),
                hint="install the package the detail names (for s3:// pip install 'headrace[s3]'), or use a directory",
            ) from error
        return fs, root.rstrip("/")


@contextlib.contextmanager
def _told(what: str, where: str) -> Iterator[None]:
    try:
        yield
    except HeadraceError:
        raise
    except OSError as error:
        hint = make_room(where) if is_disk_full(error) else None
        raise DestinationError(f"cannot {what} {where}", detail=error.strerror or str(error), hint=hint) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _CLIENTS:
            raise
        raise DestinationConnectionFailed(
            f"cannot {what} {where}", detail=f"{type(error).__name__}: {error}"
        ) from error


def _publish_locally(target: Path, content: bytes) -> None:
    _make_directories(target.parent)
    staged = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with staged.open("wb") as file:
            file.write(content)
            _sync(file)
        os.replace(staged, target)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def _created_locally(target: Path, content: bytes) -> bool:
    _make_directories(target.parent)
    staged = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with staged.open("wb") as file:
            file.write(content)
            _sync(file)
        os.link(staged, target)
    except FileExistsError:
        return False
    finally:
        staged.unlink(missing_ok=True)
    _sync_directory(target.parent)
    return True


def _make_directories(directory: Path) -> None:
    """So that they are there after a power failure too."""
    missing = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        _sync_directory(each.parent)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
