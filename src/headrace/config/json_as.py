"""What becomes of JSON, where tables have a type for it."""

from __future__ import annotations

from enum import Enum

__all__ = ["JsonAs"]


class JsonAs(str, Enum):
    """What json and jsonb columns become."""

    STRING = "string"
    VARIANT = "variant"
