"""What the pipeline tells the receiver's process."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..lsn import Lsn

__all__ = ["Applied", "Command"]


@dataclass(frozen=True, slots=True)
class Applied:
    """Everything before `lsn` is applied; segments from `hold` on are still to be read by someone."""

    lsn: Lsn
    hold: Lsn


class Command(Enum):
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
