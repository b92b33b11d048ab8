"""Files that only expired snapshots refer to: listed when the snapshots expire, deleted after the retention time.

A scan that was planned before the expiry still needs them. Each expiry writes a list of its own, below the table and
before it is committed, so that no crash leaves a file that neither a snapshot nor a list has. If the commit then fails,
the files of the list are still in use, and they are listed again when their snapshots expire after all. Hence a file is
deleted only if no list that is not due has it and no snapshot refers to it.

The name of a list holds the checksum of its content. What a damaged list has, nobody knows: as long as it is not due,
no file of the table is deleted. Then the list goes, and its files are orphans.
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pa_fs
import structlog
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from ...config.iceberg import MaintenanceConfig
from ...errors import DestinationError
from ..lake.java_errors import java_errors
from .java import Java
from .reachable import comparable, reachable_files

__all__ = ["DIRECTORY", "DamagedList", "ExpiredFiles", "FileList", "due_lists"]

_log = structlog.get_logger("headrace.destinations.iceberg")

DIRECTORY = "headrace-expired"
"""Below the location of the table, beside `data` and `metadata`."""

# When the snapshots expired, bytes of the files, and the checksum behind a random part; earlier versions have none.
_NAME = re.compile(r"(\d+)-(\d+)-(?:[0-9a-f]{32}([0-9a-f]{8})|[0-9a-f]+)\.json$")
_MS = 1_000
# A removal reads all manifests of the table and all lists. It begins when the oldest list is overdue by this share of
# the retention time, and then takes all that are due.
_OVERDUE = 1 / 36
# Removal for the limit of space leaves this share of it, so that the next expiry does not exceed it again.
_ROOM = 0.9
_REQUESTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class FileList:
    """A list of files: when their snapshots expired, and how many bytes they have."""

    path: str
    expired_ms: int
    size: int
    checksum: str | None = None
    """CRC-32 of its content; None: an earlier version wrote it."""


class DamagedList(DestinationError):
    """The content of a list does not match its checksum, or is no list."""

    def __init__(self, listed: FileList, table: str) -> None:
        super().__init__(
            f"the list of expired files {listed.path} is damaged",
            detail=f"it may name any file of table {table}: none is deleted before maintenance.retention_s is over",
            hint="nothing to do: the list is deleted when maintenance.retention_s is over",
        )


class ExpiredFiles:
    """The lists of one table. `table` is a Java table; the owner refreshes it."""

    def __init__(self, java: Java, table: Any, io: FileIO, name: str) -> None:
        self._java, self._table, self._io, self._name = java, table, io, name
        self._directory = f"{str(table.location()).rstrip('/')}/{DIRECTORY}"

    @property
    def has_listing(self) -> bool:
        """Whether lists can be found again: not every implementation of FileIO has a listing."""
        return isinstance(self._io, PyArrowFileIO)

    def add(self, paths: Sequence[str], now_ms: int) -> None:
        """List files whose snapshots are about to expire."""
        if paths:
            content = json.dumps(sorted(paths)).encode()
            name = f"{now_ms:014d}-{self._size(paths)}-{uuid.uuid4().hex}{_checksum(content)}.json"
            with self._io.new_output(f"{self._directory}/{name}").create() as target:
                target.write(content)

    def pending(self) -> set[str]:
        """Return all files that are listed, as `comparable` locations. Raises if a list is damaged."""
        found: set[str] = set()
        for listed in self._lists():
            found.update(map(comparable, self._read(listed)))
        return found

    def remove(self, settings: MaintenanceConfig, now_ms: int) -> int:
        """Delete files whose retention time is over, and the oldest of the others while they exceed the space limit.

        Returns how many files were deleted. What fails is tried again in the next round: the list is deleted last.
        """
        lists = self._lists()
        due, exceeding = due_lists(lists, settings, now_ms)
        if exceeding:
            _log.warning(
                "files of expired snapshots exceed maintenance.retention_bytes; the oldest are deleted before "
                "maintenance.retention_s is over, and scans that were planned before may fail",
                table=self._name,
                bytes=sum(listed.size for listed in lists),
                deleted_bytes=sum(listed.size for listed in exceeding),
                age_s=round((now_ms - exceeding[-1].expired_ms) / _MS),
            )
        return self._remove([*due, *exceeding], lists)

    def remove_all(self) -> int:
        """Delete all listed files that no snapshot refers to, because the table is about to be dropped."""
        lists = self._lists()
        return self._remove(lists, lists)

    def _remove(self, due: Sequence[FileList], lists: Sequence[FileList]) -> int:
        if not due:
            return 0
        files = self._unlisted_elsewhere(due, lists)
        with java_errors(f"delete files of expired snapshots of table {self._name}"):
            if files:
                _discard(files, reachable_files(self._java, self._table))
            self._java.remove_files(self._table.io(), list(files.values()))
            self._java.remove_files(self._table.io(), [listed.path for listed in due])
        if files:
            _log.info("files of expired snapshots deleted", table=self._name, files=len(files))
        return len(files)

    def _unlisted_elsewhere(self, due: Sequence[FileList], lists: Sequence[FileList]) -> dict[str, str]:
        """Return the files of the due lists that no other list has, by `comparable` location.

        Raises if another list is damaged: it may have any of them.
        """
        files: dict[str, str] = {}
        for listed in due:
            try:
                files |= {comparable(path): path for path in self._read(listed)}
            except DamagedList as error:
                _log.warning(f"{error.message}; its files are left to the removal of orphan files", table=self._name)
        for listed in set(lists).difference(due):
            _discard(files, map(comparable, self._read(listed)))
        return files

    def _read(self, listed: FileList) -> list[str]:
        try:
            with self._io.new_input(listed.path).open() as source:
                content = bytes(source.read())
        except FileNotFoundError:
            # Another run has dealt with it.
            return []
        if listed.checksum not in (None, _checksum(content)):
            raise DamagedList(listed, self._name)
        try:
            return list(json.loads(content))
        except ValueError:
            raise DamagedList(listed, self._name) from None

    def _lists(self) -> list[FileList]:
        """Return all lists, oldest first."""
        file_system, directory = self._place(self._directory)
        found = []
        for info in file_system.get_file_info(pa_fs.FileSelector(directory, allow_not_found=True)):
            match = _NAME.match(info.base_name)
            if match is not None:
                path = f"{self._directory}/{info.base_name}"
                found.append(FileList(path, int(match[1]), int(match[2]), match[3]))
        return sorted(found, key=lambda listed: (listed.expired_ms, listed.path))

    def _size(self, paths: Sequence[str]) -> int:
        def size(path: str) -> int:
            file_system, place = self._place(path)
            return file_system.get_file_info(place).size or 0

        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
            return sum(pool.map(size, paths))

    def _place(self, location: str) -> tuple[pa_fs.FileSystem, str]:
        assert isinstance(self._io, PyArrowFileIO)
        scheme, host, path = PyArrowFileIO.parse_location(location)
        return self._io.fs_by_scheme(scheme, host), path


def due_lists(
    lists: Sequence[FileList], settings: MaintenanceConfig, now_ms: int
) -> tuple[list[FileList], list[FileList]]:
    """Return the lists whose retention time is over, and those that exceed the space limit; `lists` is oldest first."""
    retention_ms = settings.retention_s * _MS
    aged = [listed for listed in lists if listed.expired_ms <= now_ms - retention_ms]
    young, limit = lists[len(aged) :], settings.retention_bytes
    kept, exceeding = sum(listed.size for listed in young), []
    if limit is not None and kept > limit:
        for listed in young:
            if kept <= limit * _ROOM:
                break
            exceeding.append(listed)
            kept -= listed.size
    is_overdue = bool(aged) and aged[0].expired_ms <= now_ms - retention_ms * (1 + _OVERDUE)
    return (aged if is_overdue or exceeding else []), exceeding


def _checksum(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def _discard(files: dict[str, str], locations: Iterable[str]) -> None:
    """Take out files by their `comparable` locations, reading no more locations than there is need for."""
    for location in locations:
        files.pop(location, None)
        if not files:
            return
