"""Names and places of a log's files. What a restart has to know stands in names: no file is opened for it.

headrace.json                                            whose log this is
epochs/0000000001.json                                   one per run: who claimed the log, last in the one named highest
public.orders.16384/                                     a table; its OID is what counts
    manifests/000001-0000000007-9f2c…-changes-….json     generation, sequence, attempt, what it is, how many files
    generation=1/copy/0000000001-….parquet               rows of the initial copy
    generation=1/changes/commit_date=2026-11-16/….parquet
    generation=1/rejected/….parquet                      values that no type holds
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...lsn import Lsn
from ...schema import TableSchema

__all__ = [
    "EPOCHS",
    "OWNER",
    "ManifestKind",
    "ManifestName",
    "attempt_of",
    "content_generation",
    "counting",
    "epoch_path",
    "is_staged",
    "missing_sequences",
    "new_attempt",
    "new_directory",
    "table_id_of",
]

OWNER = "headrace.json"
EPOCHS = "epochs"
_TOKEN_DIGITS, _EPOCH_DIGITS = 12, 8
_SHOWN = 60
"""Characters of a name that are shown: that of a directory may have 255."""
_NAME = re.compile(r"(\d{6,})-(\d{10,})-([0-9a-f]+)-([a-z]+)-(\d+)-(\d+)\.json")
_STAGED = re.compile(r"\.?(.+\.json)\.[0-9a-f]{32}")
_FILE = re.compile(r"(\d{10,})-([0-9a-f]+)-[0-9a-f]+\.parquet")


class ManifestKind(StrEnum):
    """What a manifest tells."""

    BEGIN = "begin"
    """The table is copied anew. What stands before it counts until the new copy's first rows are there."""
    COPY = "copy"
    CHANGES = "changes"
    GONE = "gone"
    """The table has left the publication."""
    CLAIM = "claim"
    """Another run has taken over. What a run before it publishes from here on does not count."""


@dataclass(frozen=True, slots=True, order=True)
class ManifestName:
    """In the order of what happened to a table."""

    generation: int
    sequence: int
    attempt: str
    kind: ManifestKind
    value: int = 0
    """The part of a copy, or where a batch of changes ends."""
    files: int = 0

    def __str__(self) -> str:
        numbers = f"{self.generation:06d}-{self.sequence:010d}-{self.attempt}"
        return f"{numbers}-{self.kind.value}-{self.value}-{self.files}.json"

    @classmethod
    def parse(cls, name: str) -> ManifestName | None:
        """None: the file is none."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        generation, sequence, attempt, kind, value, files = match.groups()
        return cls(int(generation), int(sequence), attempt, ManifestKind(kind), int(value), int(files))

    @property
    def end(self) -> Lsn:
        return Lsn(self.value)

    @property
    def epoch(self) -> int:
        """Of the run that wrote it; 0: it was written before runs had epochs, or by none that claimed the log."""
        return int(self.attempt[:_EPOCH_DIGITS], 16) if len(self.attempt) > _TOKEN_DIGITS else 0


def new_attempt(epoch: int) -> str:
    """What tells an attempt from all others, with the epoch of its run in front."""
    token = secrets.token_hex(_TOKEN_DIGITS // 2)
    return f"{epoch:0{_EPOCH_DIGITS}x}{token}" if epoch else token


def epoch_path(epoch: int) -> str:
    """The file whose existence says that an epoch was claimed."""
    return f"{EPOCHS}/{epoch:010d}.json"


def counting(names: Iterable[ManifestName]) -> list[ManifestName]:
    """The manifests that count, in order: none that a run published after another had taken the table over."""
    kept: list[ManifestName] = []
    for name in sorted(names, key=lambda name: (name.sequence, name.epoch, name)):
        if kept and name.epoch < max(kept[-1].epoch, 0):
            continue
        while kept and kept[-1].sequence == name.sequence and kept[-1].epoch < name.epoch:
            kept.pop()
        kept.append(name)
    return kept


def missing_sequences(names: Sequence[ManifestName]) -> list[range]:
    """Find the numbers that no manifest has, of those that count: from the generation on that readers take.

    A generation begins with the number 1, with a manifest `begin`, or after the table's `gone`, which removes all that
    was before. From there on each manifest has the number after the one before it, whichever run wrote it. Earlier ones
    belong to a generation that nobody reads, and may have been removed.
    """
    generation = content_generation(names)
    if generation is None:
        return []
    first = next(index for index, name in enumerate(names) if name.generation == generation)
    last = names[first - 1].sequence if first else 0
    if names[first].kind is ManifestKind.BEGIN:
        last = names[first].sequence - 1
    gaps = []
    for name in names[first:]:
        if name.sequence > last + 1:
            gaps.append(range(last + 1, name.sequence))
        last = name.sequence
    return gaps


def new_directory(table: TableSchema) -> str:
    """The directory of a table: it can be read, and stays when the table is renamed."""
    readable = [re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_SHOWN] for name in (table.name.schema, table.name.name)]
    return f"{'.'.join(readable)}.{table.id}"


def table_id_of(directory: str) -> int | None:
    """Whose directory it is; None: it is no table's."""
    number = directory.rpartition(".")[2]
    return int(number) if directory.count(".") == 2 and number.isdigit() else None


def attempt_of(path: str) -> tuple[int, str] | None:
    """The sequence and attempt that wrote a data file."""
    match = _FILE.fullmatch(path.rpartition("/")[2])
    return None if match is None else (int(match[1]), match[2])


def is_staged(path: str) -> bool:
    """Whether it is a manifest that was written, and not renamed to what it is to be."""
    match = _STAGED.fullmatch(path.rpartition("/")[2])
    return match is not None and ManifestName.parse(match[1]) is not None


def content_generation(names: Iterable[ManifestName]) -> int | None:
    """The generation that readers are to take: the newest with rows; None: the table is not there."""
    known = sorted(names)
    if not known or known[-1].kind is ManifestKind.GONE:
        return None
    told = [name.generation for name in known if name.kind in (ManifestKind.COPY, ManifestKind.CHANGES)]
    return max(told, default=None)
