"""What a commit holds, as JSON: files, truncates and schema changes in order, with LSNs. It is published last."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ...errors import DestinationError, RetryPolicy
from ...events import Relation, Truncate, TruncateOptions
from ...lsn import INVALID_LSN, Lsn
from ...remedies import RESYNC, name_table
from ...schema import ReplicatedTableSchema
from ...stores.encoding import decode_schema, encode_schema
from .layout import ManifestName

__all__ = [
    "COPY_AGAIN",
    "FORMAT",
    "DataFile",
    "Manifest",
    "StoredRows",
    "StoredStep",
    "decode_record",
    "encode_record",
    "from_json",
    "missing_manifests",
    "to_json",
]

FORMAT = 1
_CHECKSUM = "crc32"
_KEYS = frozenset(
    {
        *("format", "pipeline_id", "table", "table_id", "generation", "sequence", "kind", "value", "start", "end"),
        *("written_at", "files", "steps", "schema", "schemas", "contents", "epoch", "run_id", "source", "claimed_at"),
    }
)
"""All keys of files that were written before there was a checksum."""
COPY_AGAIN = (
    "restore the file from a backup; without one, copy the table again, which begins another generation of its log: "
    f"{RESYNC}"
)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file, its path from the location on. Of changes it has the bounds, in commit order."""

    path: str
    rows: int
    bytes: int
    first: tuple[int, int] | None = None
    """Commit LSN and ordinal of the first change."""
    last: tuple[int, int] | None = None
    commit_times: tuple[str, str] | None = None
    """The earliest and the latest, as ISO texts in UTC."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of one schema version, of a copy or of changes, in order."""

    schema: ReplicatedTableSchema
    files: tuple[DataFile, ...]
    rejected: tuple[DataFile, ...] = ()


StoredStep = StoredRows | Relation | Truncate


@dataclass(frozen=True, slots=True)
class Manifest:
    """One commit of one table."""

    name: ManifestName
    schema: ReplicatedTableSchema
    """The table as it is behind the last step."""
    pipeline_id: int
    written_at: str
    start: Lsn = INVALID_LSN
    """Of changes: the batch has all from here on, before its end."""
    steps: tuple[StoredStep, ...] = field(default=())


def to_json(manifest: Manifest) -> bytes:
    schemas: list[ReplicatedTableSchema] = []
    files: list[dict[str, Any]] = []
    steps = [_step(step, schemas, files) for step in manifest.steps]
    last = _number(manifest.schema, schemas)
    name, table = manifest.name, manifest.schema.table
    value = {
        "format": FORMAT,
        "pipeline_id": manifest.pipeline_id,
        "table": str(table.name),
        "table_id": table.id,
        "generation": name.generation,
        "sequence": name.sequence,
        "kind": name.kind.value,
        "value": name.value,
        "start": str(manifest.start),
        "end": str(name.end),
        "written_at": manifest.written_at,
        "files": files,
        "steps": steps,
        "schema": last,
        "schemas": [json.loads(encode_schema(schema)) for schema in schemas],
    }
    return encode_record(value)


def encode_record(value: Mapping[str, Any]) -> bytes:
    """Encode a JSON record of the log (a manifest or a claim) with a checksum of its fields."""
    return _text({**value, _CHECKSUM: f"{zlib.crc32(_text(value)):08x}"})


def decode_record(content: bytes, what: str, hint: str) -> dict[str, Any]:
    """Decode a JSON record and verify its checksum, which records of earlier versions lack.

    Raises DestinationError, which names the record by `what`.
    """
    try:
        value = json.loads(content)
        checksum = value.pop(_CHECKSUM, None)
    except (AttributeError, TypeError, ValueError) as error:
        raise DestinationError(f"{what} cannot be read", hint=hint, retry=RetryPolicy.MANUAL) from error
    unknown = checksum is None and not _KEYS.issuperset(value)
    if unknown or checksum not in (None, f"{zlib.crc32(_text(value)):08x}"):
        msg = f"{what} is damaged: it does not match its checksum"
        raise DestinationError(msg, hint=hint, retry=RetryPolicy.MANUAL)
    return dict(value)


def _text(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(name: ManifestName, content: bytes) -> Manifest:
    """Raises DestinationError for what is none, or of a later format."""
    value = decode_record(content, f"manifest {name}", COPY_AGAIN)
    try:
        if value["format"] > FORMAT:
            msg = f"manifest {name} has format {value['format']}, this version reads up to {FORMAT}"
            raise DestinationError(msg, hint="use a newer headrace", retry=RetryPolicy.MANUAL)
        schemas = [decode_schema(json.dumps(schema)) for schema in value["schemas"]]
        files = [_to_file(file) for file in value["files"]]
        steps = tuple(_to_step(step, schemas, files) for step in value["steps"])
        start = Lsn.parse(value["start"])
        return Manifest(name, schemas[value["schema"]], value["pipeline_id"], value["written_at"], start, steps)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        msg = f"manifest {name} cannot be read"
        raise DestinationError(msg, hint=COPY_AGAIN, retry=RetryPolicy.MANUAL) from error


def missing_manifests(gaps: Iterable[range], table: object, location: str, where: str) -> DestinationError:
    """Return the error of a table's log that lacks manifests with these numbers."""
    shown = ", ".join(str(gap[0]) if len(gap) == 1 else f"{gap[0]}-{gap[-1]}" for gap in gaps)
    one = shown.isdecimal()
    what = f"manifest{'' if one else 's'} {shown} of table {table}"
    return DestinationError(
        f"the log at {location} lacks {what}: rows or changes are missing",
        detail=f"the number is the second part of a file's name in {where}",
        hint=name_table(COPY_AGAIN if one else COPY_AGAIN.replace("the file", "the files"), table),
        retry=RetryPolicy.MANUAL,
    )


def _step(step: StoredStep, schemas: list[ReplicatedTableSchema], files: list[dict[str, Any]]) -> dict[str, Any]:
    if isinstance(step, StoredRows):
        numbers = [_add(file, "rows", files) for file in step.files]
        rejected = [_add(file, "rejected", files) for file in step.rejected]
        return {"step": "rows", "schema": _number(step.schema, schemas), "files": numbers, "rejected": rejected}
    place = {"start_lsn": str(step.start_lsn), "commit_lsn": str(step.commit_lsn)}
    if isinstance(step, Relation):
        old = None if step.old is None else _number(step.old, schemas)
        return {"step": "relation", **place, "old": old, "new": _number(step.new, schemas), "rewritten": step.rewritten}
    return {
        "step": "truncate",
        **place,
        "tx_ordinal": step.tx_ordinal,
        "xid": step.xid,
        "commit_time": step.commit_time.isoformat(),
        "options": int(step.options),
        "schemas": [_number(schema, schemas) for schema in step.schemas],
    }


def _to_step(value: dict[str, Any], schemas: list[ReplicatedTableSchema], files: list[DataFile]) -> StoredStep:
    if value["step"] == "rows":
        rows, rejected = (tuple(files[number] for number in value[kind]) for kind in ("files", "rejected"))
        return StoredRows(schemas[value["schema"]], rows, rejected)
    start, commit = Lsn.parse(value["start_lsn"]), Lsn.parse(value["commit_lsn"])
    if value["step"] == "relation":
        old = None if value["old"] is None else schemas[value["old"]]
        return Relation(start, commit, old, schemas[value["new"]], value["rewritten"])
    moment = datetime.fromisoformat(value["commit_time"])
    emptied = tuple(schemas[number] for number in value["schemas"])
    return Truncate(
        start, commit, value["tx_ordinal"], value["xid"], moment, emptied, TruncateOptions(value["options"])
    )


def _number(schema: ReplicatedTableSchema, schemas: list[ReplicatedTableSchema]) -> int:
    if schema not in schemas:
        schemas.append(schema)
    return schemas.index(schema)


def _add(file: DataFile, content: str, files: list[dict[str, Any]]) -> int:
    bounds = {"first": file.first, "last": file.last, "commit_times": file.commit_times}
    files.append({"path": file.path, "content": content, "rows": file.rows, "bytes": file.bytes, **bounds})
    return len(files) - 1


def _to_file(value: dict[str, Any]) -> DataFile:
    first, last, times = (None if value[k] is None else tuple(value[k]) for k in ("first", "last", "commit_times"))
    return DataFile(value["path"], value["rows"], value["bytes"], first, last, times)
