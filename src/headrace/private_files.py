"""Files and directories that only their owner may use, whatever the umask; a group may read them where settings say so.

Spool and store hold rows in clear, also the columns that transforms leave out or mask, and their content is trusted.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shlex
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from .errors import ConfigError

__all__ = [
    "OWNER_ONLY",
    "Access",
    "create_file",
    "grant",
    "group_access",
    "make_directory",
    "require_private",
    "secure_directory",
    "sync_directory",
]

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Access:
    """Who may read: the owner alone, or the members of a group too. Only the owner writes."""

    gid: int | None = None

    @property
    def directory_mode(self) -> int:
        return 0o700 if self.gid is None else 0o750

    @property
    def file_mode(self) -> int:
        return 0o600 if self.gid is None else 0o640

    @property
    def passage_mode(self) -> int:
        """The mode of a directory that leads to one that may be read."""
        return 0o700 if self.gid is None else 0o710


OWNER_ONLY = Access()


# Looked up once: a spool asks for it with each segment, and the answer may come from a directory service.
@lru_cache
def group_access(group: str | None) -> Access:
    """Return the access that `spool.group` gives, by name or number. Raises ConfigError for an unknown group."""
    if group is None:
        return OWNER_ONLY
    if group.isdecimal():
        return Access(int(group))
    try:
        return Access(grp.getgrnam(group).gr_gid)
    except KeyError:
        msg = f"spool.group is {group}, and this machine has no such group"
        raise ConfigError(msg, hint="name a group of this machine, or give its number") from None


def create_file(path: Path) -> None:
    """Create a file that only its owner may read and write. What another process has written to it meanwhile stays."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, OWNER_ONLY.file_mode)
    try:
        os.fchmod(descriptor, OWNER_ONLY.file_mode)
    finally:
        os.close(descriptor)


def make_directory(path: Path, access: Access = OWNER_ONLY) -> None:
    """Make a directory and those above it, as far as they are missing. What is there stays as it is."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        try:
            each.mkdir(OWNER_ONLY.directory_mode)
        except FileExistsError:
            continue  # another process was faster
        except NotADirectoryError:
            break
        grant(each, access.directory_mode if each == path else access.passage_mode, access)
        sync_directory(each.parent)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def secure_directory(path: Path, access: Access = OWNER_ONLY, *, mode: int | None = None) -> None:
    """Give a directory its mode. Raises ConfigError where it is another user's, or others could write to it."""
    require_private(path)
    grant(path, access.directory_mode if mode is None else mode, access)


def require_private(path: Path) -> None:
    """Raise ConfigError if a directory belongs to another user, or has files and others can write to it."""
    status = path.stat()
    quoted, mine = shlex.quote(str(path)), os.geteuid()
    if status.st_uid != mine:
        raise ConfigError(
            f"the directory {path} belongs to {_user_name(status.st_uid)}, not to {_user_name(mine)}, who runs this",
            hint=f"chown -R {_user_name(mine)} {quoted}; or name a directory inside it, which is then created",
        )
    has_files = any(not entry.is_dir() for entry in path.iterdir())
    if status.st_mode & _OTHERS_WRITE and has_files:
        raise ConfigError(
            f"other users can write to the directory {path}",
            detail=f"its mode is {stat.S_IMODE(status.st_mode):04o}; what lies there is trusted",
            hint=f"make sure that nobody has changed it, then: chmod -R go-w {quoted}",
        )


def grant(path: Path, mode: int, access: Access) -> None:
    """Set mode and group of a file or directory, unless it has them. Raises ConfigError if that is not allowed."""
    status = path.stat()
    try:
        if access.gid is not None and status.st_gid != access.gid:
            os.chown(path, -1, access.gid)
        if stat.S_IMODE(status.st_mode) != mode:
            path.chmod(mode)
    except PermissionError as error:
        what = f"mode {mode:04o}" if access.gid is None else f"mode {mode:04o} and group {access.gid}"
        hint = "it must belong to the user that runs this, who must be a member of spool.group if that is set"
        raise ConfigError(f"cannot give {path} {what}", detail=error.strerror, hint=hint) from error


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
