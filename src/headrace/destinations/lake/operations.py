"""What a commit is made of: the files of a table as they were planned for, and the steps that change them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .evolution.alteration import Alteration
from .files import LiveFile, Written

__all__ = ["Files", "Operation", "key_ids", "live_file"]


@dataclass(frozen=True, slots=True)
class Files:
    """The live files of one snapshot, by path. `snapshot` is None for a table that has none yet."""

    snapshot: int | None
    live: Mapping[str, LiveFile] = field(default_factory=dict)

    def after(self, written: Written, keys: tuple[int, ...]) -> Files:
        """As they are once `written` is committed; `keys` are the field ids of which bounds are kept."""
        live = dict(self.live)
        for file in written.data:
            live[file.path] = live_file(json.loads(file.json), keys)
        for vector in written.vectors:
            live[vector.referenced] = replace(live[vector.referenced], vector=vector)
        for path in written.emptied:
            del live[path]
        return Files(self.snapshot, live)


_NO_FILES = Written()


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a commit: the table is altered, all that came before goes (`truncate`), files come."""

    written: Written = _NO_FILES
    truncate: bool = False
    alteration: Alteration | None = None

    @property
    def is_nothing(self) -> bool:
        return self == _NOTHING


_NOTHING = Operation()


def key_ids(schema_json: str, key: Iterable[str] | None) -> tuple[int, ...]:
    """The fields of which bounds are kept: the key's, or all where there is none."""
    ids = {field["name"]: int(field["id"]) for field in json.loads(schema_json)["fields"]}
    return tuple(ids.values()) if key is None else tuple(ids[name] for name in key if name in ids)


def live_file(entry: Mapping[str, Any], keys: Iterable[int]) -> LiveFile:
    """From ContentFileParser's form."""
    lower, upper = (_bounds(entry.get(name)) for name in ("lower-bounds", "upper-bounds"))
    return LiveFile(
        path=entry["file-path"],
        size=entry["file-size-in-bytes"],
        records=entry["record-count"],
        spec_id=entry["spec-id"],
        partition_json=json.dumps(entry.get("partition", [])),
        bounds={key: (lower[key], upper[key]) for key in keys if key in lower and key in upper},
    )


def _bounds(entry: Mapping[str, Any] | None) -> dict[int, bytes]:
    if not entry:
        return {}
    return {key: bytes.fromhex(value) for key, value in zip(entry["keys"], entry["values"], strict=True)}
