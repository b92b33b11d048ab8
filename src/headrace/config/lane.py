"""The names of a pipeline's destinations. Each has a lane of its own: progress, retries, errors."""

from __future__ import annotations

from typing import Annotated

from .form import Form

__all__ = ["DEFAULT", "NAME_PATTERN", "UNNAMED", "DestinationName"]

NAME_PATTERN = r"^[a-z][a-z0-9_]{0,30}$"

DestinationName = Annotated[
    str, Form(NAME_PATTERN, "must begin with one of a-z and go on with up to 30 of a-z, 0-9 and _")
]
"""What a destination is called in `destinations`."""

UNNAMED = ""
"""The lane of the one destination in `destination`."""

DEFAULT = "default"
"""The name that goes on where `destination` was: it has the same record in the store."""
