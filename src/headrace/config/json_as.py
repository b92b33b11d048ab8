"""What becomes of JSON, where tables have a type for it."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["JsonAs"]


class JsonAs(StrEnum):
    """What json and jsonb columns become."""

    STRING = "string"
    VARIANT = "variant"
