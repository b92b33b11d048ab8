"""Whose changes a spool holds. A spool belongs to one slot of one database of one Postgres cluster, for good."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace

from ..errors import ConfigError, SpoolCorrupt, SpoolInUse
from .contract import Place
from .place import LocalPlace, publish_json, read_json

__all__ = ["SpoolOwner", "adopt", "claim", "lock", "locked", "owner_of"]

_NAME = "owner.json"


@dataclass(frozen=True, slots=True)
class SpoolOwner:
    """The cluster's system identifier, the database and the slot."""

    system_id: str
    database: str
    slot: str
    former_system_ids: tuple[str, ...] = field(default=(), compare=False)
    """Those that the cluster had before it was upgraded, oldest first."""

    @property
    def first_system_id(self) -> str:
        """The system identifier under which the spool was begun."""
        return (*self.former_system_ids, self.system_id)[0]


def claim(place: Place, owner: SpoolOwner) -> None:
    """Write the owner into an unowned spool; refuse a spool that is someone else's, before anything is appended."""
    found = owner_of(place)
    if found is None:
        _write(place, owner)
    elif found != owner:
        raise ConfigError(
            f"the spool {place.location} belongs to slot {found.slot} of database {found.database} "
            f"on cluster {found.system_id}",
            detail=f"this pipeline reads slot {owner.slot} of database {owner.database} on cluster {owner.system_id}",
            hint="give the pipeline a spool of its own, or empty this one if its source is gone; after a pg_upgrade of "
            "the source: headrace adopt PIPELINE.YAML",
        )


def owner_of(place: Place) -> SpoolOwner | None:
    """Return the recorded owner, or None for an unowned spool. Raises SpoolCorrupt."""
    hint = "remove the file if the spool is this pipeline's: it is written again; otherwise choose another spool"
    found = read_json(place, _NAME, [one.name for one in fields(SpoolOwner)], hint)
    if found is None:
        return None
    try:
        return SpoolOwner(**{**found, "former_system_ids": tuple(found.get("former_system_ids", ()))})
    except TypeError as error:
        raise SpoolCorrupt(f"{place.location}/{_NAME} cannot be read", hint=hint) from error


def adopt(place: Place, system_id: str) -> None:
    """Give an owned spool to the same database and slot of an upgraded cluster, and keep the identifiers it had."""
    found = owner_of(place)
    if found is not None and found.system_id != system_id:
        former = (*found.former_system_ids, found.system_id)
        _write(place, replace(found, system_id=system_id, former_system_ids=former))


def _write(place: Place, owner: SpoolOwner) -> None:
    # Versions that know nothing of upgrades can read what was never upgraded.
    content = {name: value for name, value in asdict(owner).items() if value}
    publish_json(place, _NAME, content)


def lock(place: Place, slot: str) -> int | None:
    """Keep a second receiver out of a local spool while this process lives; returns the held descriptor.

    A remote place needs none: the replication slot lets only one receiver in, and nothing is written without it. Raises
    SpoolInUse while another receiver of the slot holds the lock, and ConfigError if the spool is another slot's.
    """
    if not isinstance(place, LocalPlace):
        return None
    found = owner_of(place)
    if found is not None and found.slot != slot:
        msg = f"the spool {place.root} belongs to slot {found.slot}, not to slot {slot}"
        raise ConfigError(msg, hint="give the pipeline a spool of its own, or empty this one if its source is gone")
    descriptor = os.open(place.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 100, 0).decode(errors="replace").strip()
        os.close(descriptor)
        msg = f"another receiver writes to the spool {place.root}"
        raise SpoolInUse(msg, detail=f"process {holder}" if holder else None) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return descriptor


@contextmanager
def locked(place: Place, slot: str) -> Iterator[None]:
    """Hold the `lock` within the block."""
    held = lock(place, slot)
    try:
        yield
    finally:
        if held is not None:
            os.close(held)
