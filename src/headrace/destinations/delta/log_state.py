"""What a table's log comes to: its files, its metadata, the position on record. Carried from version to version."""

from __future__ import annotations

import base64
import decimal
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from ...errors import DestinationRejected
from ...remedies import ROLLBACK
from ..lake.files import DeletionVector, LiveFile
from .statistics import key_bounds

__all__ = ["LogState", "live_file", "relative_path", "vector_path", "whole_path"]

_UUID_CHARACTERS = 20
_Z85 = bytes.maketrans(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
# Around a vector in its file: its length and its checksum.
_FRAME_BYTES = 8


@dataclass(frozen=True, slots=True)
class LogState:
    """A table at one version. `files` are the entries `add` of its log, by the files' whole paths."""

    location: str
    version: int
    metadata: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    applied: int | None = None
    """The version of our own transactions, which is an LSN."""

    @property
    def properties(self) -> Mapping[str, str]:
        return dict(self.metadata.get("configuration") or {})

    def after(self, version: int, actions: Iterable[Mapping[str, Any]], application: str) -> LogState:
        """With one commit more."""
        files, metadata, applied = dict(self.files), self.metadata, self.applied
        for action in actions:
            if "remove" in action:
                removed, path = action["remove"], self.whole_path(action["remove"]["path"])
                if path in files and _vector_id(files[path]) == _vector_id(removed):
                    del files[path]
        for action in actions:
            if "add" in action:
                files[self.whole_path(action["add"]["path"])] = action["add"]
            elif "metaData" in action:
                metadata = action["metaData"]
            elif "txn" in action and action["txn"]["appId"] == application:
                applied = action["txn"]["version"]
        return LogState(self.location, version, metadata, files, applied)

    def whole_path(self, path: str) -> str:
        return whole_path(self.location, path)


def whole_path(location: str, path: str) -> str:
    """The log has paths as URIs, below the table or anywhere."""
    plain = unquote(path)
    return plain if ":" in plain.split("/")[0] or plain.startswith("/") else f"{location}/{plain}"


def relative_path(location: str, path: str) -> str:
    return quote(path.removeprefix(f"{location}/"), safe="/-_.~=")


def live_file(location: str, path: str, entry: Mapping[str, Any], schema_json: str, keys: Iterable[int]) -> LiveFile:
    """What is needed to find rows in a file."""
    statistics = json.loads(entry.get("stats") or "{}", parse_float=decimal.Decimal)
    if "numRecords" not in statistics:
        msg = f"the file {path} has no count of rows in Delta's log"
        raise DestinationRejected(msg, hint="somebody else wrote it without statistics: copy the table again")
    return LiveFile(
        path=path,
        size=entry["size"],
        records=statistics["numRecords"],
        spec_id=0,
        partition_json="[]",
        bounds=key_bounds(statistics, schema_json, keys),
        vector=_vector(location, path, entry.get("deletionVector")),
    )


def _vector(location: str, path: str, entry: Mapping[str, Any] | None) -> DeletionVector | None:
    if entry is None:
        return None
    if entry["storageType"] not in ("u", "p"):
        msg = f"the file {path} has a deletion vector within Delta's log, which Headrace did not write"
        raise DestinationRejected(
            msg, hint=f"rewrite its files with REORG TABLE and APPLY (PURGE), then run: {ROLLBACK}"
        )
    return DeletionVector(
        referenced=path,
        path=vector_path(location, entry),
        offset=entry.get("offset", 0),
        length=entry["sizeInBytes"] + _FRAME_BYTES,
        records=entry["cardinality"],
        json=json.dumps(entry),
    )


def vector_path(location: str, entry: Mapping[str, Any]) -> str:
    """The file of a deletion vector."""
    text = entry["pathOrInlineDv"]
    if entry["storageType"] == "p":
        return str(unquote(text))
    directory, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    name = uuid.UUID(bytes=base64.b85decode(encoded.encode().translate(_Z85)))
    return "/".join(part for part in (location, directory, f"deletion_vector_{name}.bin") if part)


def _vector_id(entry: Mapping[str, Any]) -> tuple[Any, ...] | None:
    vector = entry.get("deletionVector")
    return None if vector is None else (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))
