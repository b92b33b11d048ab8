"""A change of a table's schema, drafted here and then done by the table format: both must come to the same fields."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....schema import Column
from ..schema import may_identify
from .column_record import ColumnRecord
from .field_types import FieldType, with_ids

__all__ = ["Added", "Alteration", "CannotAlter", "Draft", "Edited"]


class CannotAlter(Exception):
    """Altering the table would not make its rows right: it must be copied again."""


@dataclass(frozen=True, slots=True)
class Edited:
    """What becomes of a field, which is found by its path before the alteration. None: as it was."""

    path: str
    deleted: bool = False
    name: str | None = None
    type: str | None = None
    doc: str | None = None
    undocumented: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Added:
    """A new field. `entry` is Iceberg's JSON of it."""

    parent: str | None
    entry: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change, as the steps that Iceberg knows: edits, additions, moves, then what makes an identifier."""

    schema_json: str
    """The schema after it."""
    record: ColumnRecord
    edited: tuple[Edited, ...] = ()
    added: tuple[Added, ...] = ()
    required: tuple[str, ...] = ()
    identifiers: tuple[str, ...] | None = None
    """None: as they were."""
    properties: Mapping[str, str | None] = field(default_factory=dict)
    """Table properties to set, or to remove (None)."""
    order: tuple[str, ...] = ()
    """The first fields, where they have to be moved."""
    filled: tuple[Column, ...] = ()
    """New columns of the source of which rows that are there have a value: they are written anew with it."""

    @property
    def alters_schema(self) -> bool:
        return bool(self.edited or self.added or self.order or self.required or self.identifiers is not None)


class Draft:
    """A schema that is being changed. Fields are named by their ids."""

    def __init__(self, schema: Mapping[str, Any], last_id: int, pinned: frozenset[int] = frozenset()) -> None:
        self._schema = json.loads(json.dumps(schema))
        self._fields = {entry["id"]: entry for entry in self._schema["fields"]}
        self._paths = {number: entry["name"] for number, entry in self._fields.items()}
        self._below: dict[int, int] = {}
        for parent in list(self._fields.values()):
            self._take_children(parent)
        self._last_id, self._pinned = last_id, pinned
        self._edits: dict[int, dict[str, Any]] = {}
        self._added: list[Added] = []
        self._required: list[int] = []
        self._identifiers: list[int] | None = None
        self._ordered: tuple[int, ...] = ()

    def _take_children(self, parent: Mapping[str, Any]) -> None:
        if isinstance(parent["type"], dict) and parent["type"]["type"] == "struct":
            for child in parent["type"]["fields"]:
                self._fields[child["id"]] = child
                self._below[child["id"]] = parent["id"]
                self._paths[child["id"]] = f"{parent['name']}.{child['name']}"

    @property
    def fields(self) -> dict[int, dict[str, Any]]:
        """The fields of the top level, as they are by now."""
        return {entry["id"]: entry for entry in self._schema["fields"]}

    def field(self, number: int) -> dict[str, Any] | None:
        """Also one within a struct."""
        return self._fields.get(number)

    def delete(self, number: int) -> None:
        entry = self._fields[number]
        self._check_pinned(number, f"column {entry['name']} is dropped, and the table is partitioned or sorted by it")
        self._edits[number] = {"deleted": True}
        self._schema["fields"].remove(entry)

    def rename(self, number: int, name: str) -> None:
        entry = self._fields[number]
        if entry["name"] != name:
            entry["name"] = name
            self._edit(number, name=name)

    def widen(self, number: int, kind: FieldType) -> None:
        entry = self._fields[number]
        self._check_pinned(number, f"column {entry['name']} is widened, and the table is partitioned or sorted by it")
        if entry["type"] == "float":
            for default in ("initial-default", "write-default"):
                if default in entry:
                    # What readers of the float see, in all its digits.
                    entry[default] = struct.unpack("f", struct.pack("f", entry[default]))[0]
        entry["type"] = kind
        self._edit(number, type=kind)

    def describe(self, number: int, doc: str | None) -> None:
        entry = self._fields[number]
        if (entry.get("doc") or None) != (doc or None):
            entry["doc"] = doc
            self._edit(number, doc=doc, undocumented=not doc)

    def add(self, entry: Mapping[str, Any], parent: int | None = None) -> int:
        """Add a field whose type has no ids yet; returns its id."""
        number = self._fresh()
        added = {**entry, "id": number, "required": False, "type": with_ids(entry["type"], self._fresh)}
        if parent is None:
            self._schema["fields"].append(added)
        else:
            self._fields[parent]["type"]["fields"].append(added)
        self._fields[number] = added
        self._added.append(Added(None if parent is None else self._fields[parent]["name"], added))
        return number

    def identify(self, numbers: Iterable[int], *, may_require: bool) -> None:
        """Make these required and the identifier, and all others optional. Without `may_require` what is optional
        stays so: there are rows without a value.
        """
        wanted = list(numbers)
        before = set(self._schema.get("identifier-field-ids", ()))
        for number, entry in self.fields.items():
            if number not in wanted and entry["required"]:
                entry["required"] = False
                self._edit(number, optional=True)
            elif number in wanted and not entry["required"] and may_require:
                entry["required"] = True
                self._required.append(number)
        fields = self.fields
        # Iceberg has no identifiers that may be NULL.
        whole = all(fields[n]["required"] and may_identify(fields[n]["type"]) for n in wanted)
        after = wanted if whole else []
        self._schema["identifier-field-ids"] = after
        # Iceberg has their names, not their ids, while it renames: where names are swapped it takes one for the other.
        renamed = any("name" in self._edits.get(number, {}) for number in before)
        if renamed or set(after) != before:
            self._identifiers = after

    def order(self, numbers: Sequence[int]) -> None:
        """Have these fields stand in this order, in front of all others. Nothing is moved if they do by themselves."""
        fields = self.fields
        if [number for number in fields if number in numbers] != list(numbers):
            others = [entry for number, entry in fields.items() if number not in numbers]
            self._schema["fields"] = [*(fields[number] for number in numbers), *others]
            self._ordered = tuple(numbers)

    def finish(self, record: ColumnRecord, properties: Mapping[str, str | None]) -> Alteration:
        names = [entry["name"] for entry in self.fields.values()]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            msg = f"the table has a column {twice} already"
            raise CannotAlter(msg)
        return Alteration(
            schema_json=json.dumps(self._schema, ensure_ascii=False),
            record=record,
            edited=tuple(Edited(self._paths[number], **edit) for number, edit in self._edits.items()),
            added=tuple(self._added),
            required=tuple(self._fields[number]["name"] for number in self._required),
            identifiers=None
            if self._identifiers is None
            else tuple(self._fields[number]["name"] for number in self._identifiers),
            properties=properties,
            order=tuple(self._fields[number]["name"] for number in self._ordered),
        )

    def _edit(self, number: int, **changes: Any) -> None:
        if number in self._paths:
            self._edits.setdefault(number, {}).update(changes)

    def _fresh(self) -> int:
        self._last_id += 1
        return self._last_id

    @property
    def last_id(self) -> int:
        return self._last_id

    def _check_pinned(self, number: int, reason: str) -> None:
        if number in self._pinned:
            raise CannotAlter(reason)
