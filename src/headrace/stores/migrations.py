"""Numbered SQL files as migrations: 0001_tables.sql, 0002_….sql, each applied once, in order, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from ..errors import StoreVersionError

__all__ = ["Migration", "migrations_of", "pending", "require_current"]


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a store's layout."""

    version: int
    name: str
    sql: str


def migrations_of(package: str) -> tuple[Migration, ...]:
    """The migrations in a package's `migrations` folder. Raises ValueError unless they count from 1 without a gap."""
    files = [file for file in (resources.files(package) / "migrations").iterdir() if file.name.endswith(".sql")]
    found = [
        Migration(int(file.name[:4]), file.name[5:-4], file.read_text(encoding="utf-8"))
        for file in sorted(files, key=lambda file: file.name)
    ]
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        msg = f"the migrations of {package} do not count from 1 without a gap"
        raise ValueError(msg)
    return tuple(found)


def pending(migrations: Sequence[Migration], version: int, where: str) -> Sequence[Migration]:
    """What is missing at `version`. Raises StoreVersionError when the store is ahead of this program."""
    if version > len(migrations):
        msg = f"the store in {where} has version {version}, this program knows up to {len(migrations)}"
        raise StoreVersionError(msg)
    return migrations[version:]


def require_current(migrations: Sequence[Migration], version: int, where: str) -> None:
    """Raise StoreVersionError unless the store is of this program's version: its pipeline may run an older one."""
    if pending(migrations, version, where):
        msg = f"the store in {where} has version {version}, this program's is {len(migrations)}"
        hint = "run the version of headrace that wrote it; a start of the pipeline with this one brings it up to date"
        raise StoreVersionError(msg, hint=hint)
