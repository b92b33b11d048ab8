"""What a script can rely on: the exit codes of all commands."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    NOT_WELL = 1
    """It worked, and what it was asked about is not well: errors were found, tables failed."""
    USAGE = 2
    """A wrong argument or a wrong setting. Trying again changes nothing."""
    CANNOT_CONNECT = 3
    """The source or the store cannot be reached or opened, or refuses the login. Trying again later may help."""
    PIPELINE_FAILED = 4
    """An error ended it."""
    FENCED = 5
    """Another run of the same pipeline has taken over its destination or its store. It is safe to
    restart this run: it logs that it waits, and continues once the other run has released the replication slot."""
    CUT_OFF = 130
    """A signal stopped it immediately. A command that shuts down cleanly on the first signal got a second one. As
    after a crash, the next start resumes at the destination's position."""
