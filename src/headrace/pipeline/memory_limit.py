"""How much memory there is: the machine's, or less where a control group (a container, a service) says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil

__all__ = ["control_group_limit", "total_memory"]


def total_memory() -> int:
    """Bytes this process and its children may use together before the kernel acts."""
    machine = int(psutil.virtual_memory().total)
    limit = control_group_limit(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return machine if limit is None else min(machine, limit)


def control_group_limit(membership: Path, mount: Path) -> int | None:
    """The lowest limit on the way from this process's control group to the root, of version 1 or 2; None without."""
    try:
        lines = membership.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    limits = [limit for line in lines for file in _limit_files(line, mount) if (limit := _read(file)) is not None]
    return min(limits, default=None)


def _limit_files(line: str, mount: Path) -> Iterator[Path]:
    """For one line of /proc/self/cgroup, `number:controllers:path`, the files that may hold a limit."""
    _, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if controllers == "":
        root, name = mount, "memory.max"
    elif "memory" in controllers.split(","):
        root, name = mount / "memory", "memory.limit_in_bytes"
    else:
        return
    # In a container the path may be the host's and not be there; the root then holds the container's own limit.
    group = PurePosixPath(path.lstrip("/"))
    for place in (group, *group.parents):
        yield root / place / name


def _read(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        # Not there, or "max".
        return None
