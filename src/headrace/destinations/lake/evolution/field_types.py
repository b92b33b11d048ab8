"""Iceberg's types as JSON: compared, widened, and given the ids that a table's next columns get."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["FieldType", "id_count", "is_same_type", "widens", "with_ids"]

# A name of a primitive type, or an object of a nested one.
FieldType = Any

_WIDENINGS = frozenset({("int", "long"), ("float", "double")})
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def is_same_type(one: FieldType, other: FieldType) -> bool:
    """Whether they are the same apart from ids."""
    return bool(_plain(one) == _plain(other))


def widens(old: FieldType, new: FieldType) -> bool:
    """Whether Iceberg reads values of the old type as the new one: old files stay as they are."""
    if not isinstance(old, str) or not isinstance(new, str):
        return False
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before is not None and after is not None:
        return before[2] == after[2] and int(before[1]) <= int(after[1])
    return (old, new) in _WIDENINGS


def with_ids(kind: FieldType, fresh: Callable[[], int]) -> FieldType:
    """The type with ids, in the order in which Iceberg gives them: those of a level before those below it."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        numbers = [fresh() for _ in kind["fields"]]
        children = zip(numbers, kind["fields"], strict=True)
        return {**kind, "fields": [{**f, "id": number, "type": with_ids(f["type"], fresh)} for number, f in children]}
    parts = ("element",) if kind["type"] == "list" else ("key", "value")
    ids = {f"{part}-id": fresh() for part in parts}
    return {**kind, **ids, **{part: with_ids(kind[part], fresh) for part in parts}}


def id_count(kind: FieldType) -> int:
    """How many ids are within a type."""
    counted: list[int] = []

    def fresh() -> int:
        counted.append(0)
        return 0

    with_ids(kind, fresh)
    return len(counted)


def _plain(kind: FieldType) -> object:
    if isinstance(kind, str):
        return re.sub(r"\s", "", kind)
    if kind["type"] == "struct":
        return "struct", tuple((field["name"], _plain(field["type"])) for field in kind["fields"])
    return kind["type"], tuple(_plain(kind[part]) for part in ("element", "key", "value") if part in _parts(kind))


def _parts(kind: Mapping[str, Any]) -> set[str]:
    return {"element"} if kind["type"] == "list" else {"key", "value"}
