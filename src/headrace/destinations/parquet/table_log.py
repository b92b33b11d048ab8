"""One table's log as its writer knows it: from the names of its manifests, read again whenever a write failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...lsn import Lsn
from .layout import ManifestKind, ManifestName, attempt_of, counting, is_staged
from .manifest import StoredRows, from_json
from .storage import Storage

__all__ = ["TableLog", "leftovers", "log_of", "manifest_names", "read_log"]


@dataclass(frozen=True, slots=True)
class TableLog:
    """What a table's log holds: its generation under way, and what comes next in it."""

    directory: str
    generation: int = 1
    sequence: int = 0
    """That of the last manifest, in any generation."""
    parts: frozenset[int] = field(default_factory=frozenset)
    applied: Lsn | None = None
    gone: bool = False
    """Whether the last manifest says that the table has left."""

    @property
    def empty(self) -> bool:
        """Whether the generation has no rows yet."""
        return not self.parts and self.applied is None

    @property
    def data(self) -> str:
        """Where the generation's files lie."""
        return f"{self.directory}/generation={self.generation}"

    def path(self, name: ManifestName) -> str:
        return f"{self.directory}/manifests/{name}"

    def named(self, attempt: str, kind: ManifestKind, value: int = 0, files: int = 0) -> ManifestName:
        """The name of the next manifest; another generation begins with those that say so."""
        begins = kind in (ManifestKind.BEGIN, ManifestKind.GONE)
        return ManifestName(self.generation + begins, self.sequence + 1, attempt, kind, value, files)

    def after(self, name: ManifestName) -> TableLog:
        """With a manifest more."""
        same = name.generation == self.generation and name.kind is not ManifestKind.GONE
        # What comes after a table is gone belongs to none of the generations before.
        generation = name.generation + (name.kind is ManifestKind.GONE)
        parts = self.parts if same else frozenset()
        applied = self.applied if same else None
        if name.kind is ManifestKind.COPY:
            parts |= {name.value}
        elif name.kind is ManifestKind.CHANGES:
            applied = name.end
        return TableLog(self.directory, generation, name.sequence, parts, applied, name.kind is ManifestKind.GONE)


def read_log(storage: Storage, directory: str) -> TableLog:
    """By the names of its manifests."""
    return log_of(directory, manifest_names(storage, directory))


def log_of(directory: str, names: Iterable[ManifestName]) -> TableLog:
    """Return the log that has these manifests."""
    log = TableLog(directory)
    for name in names:
        log = log.after(name)
    return log


def manifest_names(storage: Storage, directory: str) -> list[ManifestName]:
    """Those that count, in order."""
    found = [ManifestName.parse(path.rpartition("/")[2]) for path in storage.files(f"{directory}/manifests")]
    return counting(name for name in found if name is not None)


def leftovers(storage: Storage, directory: str) -> list[str]:
    """Files that no manifest names: of attempts that came to nothing, manifests too, and of tasks that ran twice.

    Of a table that is gone, all that its removal did not get to. Files with the number of a missing manifest are not
    among them: whoever restores the manifest needs them.
    """
    names, files = manifest_names(storage, directory), storage.files(directory)
    if names and names[-1].kind is ManifestKind.GONE:
        return [path for path in files if not path.endswith(f"/{names[-1]}")]
    published = {(name.sequence, name.attempt): name for name in names}
    by_attempt: dict[tuple[int, str] | None, list[str]] = {}
    lost = _unpublished(names)
    for path in files:
        attempt = attempt_of(path)
        if path.endswith(".parquet") and (attempt is None or attempt[0] not in lost):
            by_attempt.setdefault(attempt, []).append(path)
    found = [path for path in files if is_staged(path)]
    for attempt, paths in by_attempt.items():
        name = published.get(attempt) if attempt is not None else None
        if name is None:
            found += paths
        elif len(paths) > name.files:
            found += sorted(set(paths) - _named(storage, directory, name))
    return found


def _unpublished(names: Sequence[ManifestName]) -> set[int]:
    """Return the numbers before the last that no manifest has. A failed attempt leaves its number to the next one."""
    gone = [name.sequence for name in names if name.kind is ManifestKind.GONE]
    since = gone[-1] if gone else 0
    last = names[-1].sequence if names else 0
    return set(range(since + 1, last)) - {name.sequence for name in names}


def _named(storage: Storage, directory: str, name: ManifestName) -> set[str]:
    content = storage.read(f"{directory}/manifests/{name}")
    assert content is not None, "it was listed a moment ago, and nobody else removes it"
    rows = [step for step in from_json(name, content).steps if isinstance(step, StoredRows)]
    return {file.path for step in rows for file in (*step.files, *step.rejected)}
