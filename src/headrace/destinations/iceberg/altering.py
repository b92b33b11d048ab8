"""An alteration, done by Iceberg within a transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from ...errors import DestinationConflict
from ..lake.evolution.alteration import Added, Alteration, Edited
from .java import Java

__all__ = ["apply_alteration"]


def apply_alteration(java: Java, transaction: Any, alteration: Alteration, table: str) -> None:
    """Alter the table within the transaction. Raises DestinationConflict if somebody else altered it before."""
    if alteration.alters_schema:
        _edit(java, transaction, alteration)
        _add(java, transaction, alteration.added)
        _order(transaction, alteration.order)
        _identify(java, transaction, alteration)
        _check(java, transaction, alteration, table)
    if alteration.properties:
        properties = transaction.updateProperties()
        for name, value in alteration.properties.items():
            if value is None:
                properties.remove(name)
            else:
                properties.set(name, value)
        properties.commit()


def _edit(java: Java, transaction: Any, alteration: Alteration) -> None:
    if not alteration.edited and alteration.identifiers is None:
        return
    update = transaction.updateSchema()
    if alteration.identifiers is not None:
        # An identifier's column can be neither dropped nor optional.
        update.setIdentifierFields(java.list_from([]))
    types = _types(java, [edited.type for edited in alteration.edited if edited.type is not None])
    for edited in alteration.edited:
        _edit_one(update, edited, types)
    update.commit()


def _edit_one(update: Any, edited: Edited, types: Mapping[str, Any]) -> None:
    if edited.deleted:
        update.deleteColumn(edited.path)
        return
    if edited.name is not None:
        update.renameColumn(edited.path, edited.name)
    if edited.type is not None:
        update.updateColumn(edited.path, types[edited.type])
    if edited.doc is not None or edited.undocumented:
        update.updateColumnDoc(edited.path, edited.doc)
    if edited.optional:
        update.makeColumnOptional(edited.path)


def _types(java: Java, names: list[str]) -> dict[str, Any]:
    """Java's primitive types by their names."""
    if not names:
        return {}
    fields = [{"id": n + 1, "name": str(n), "required": False, "type": name} for n, name in enumerate(names)]
    columns = java.iceberg.SchemaParser.fromJson(json.dumps({"type": "struct", "fields": fields})).columns()
    return {name: columns.get(place).type() for place, name in enumerate(names)}


def _add(java: Java, transaction: Any, added: tuple[Added, ...]) -> None:
    if not added:
        return
    # By way of JSON, so that Iceberg itself reads types and defaults.
    entries = [{**one.entry, "name": str(place)} for place, one in enumerate(added)]
    columns = java.iceberg.SchemaParser.fromJson(json.dumps({"type": "struct", "fields": entries})).columns()
    update = transaction.updateSchema()
    for place, one in enumerate(added):
        field = columns.get(place)
        update.addColumn(one.parent, one.entry["name"], field.type(), field.doc(), field.initialDefaultLiteral())
    update.commit()


def _order(transaction: Any, names: tuple[str, ...]) -> None:
    if not names:
        return
    update = transaction.updateSchema()
    update.moveFirst(names[0])
    for before, name in pairwise(names):
        update.moveAfter(name, before)
    update.commit()


def _identify(java: Java, transaction: Any, alteration: Alteration) -> None:
    if not alteration.required and not alteration.identifiers:
        return
    update = transaction.updateSchema()
    for name in alteration.required:
        # Every row has a value: it is part of the source's key now.
        update.allowIncompatibleChanges().requireColumn(name)
    if alteration.identifiers:
        update.setIdentifierFields(java.list_from(alteration.identifiers))
    update.commit()


def _check(java: Java, transaction: Any, alteration: Alteration, table: str) -> None:
    """Raise unless the fields are those that files are written with."""
    made = json.loads(java.iceberg.SchemaParser.toJson(transaction.table().schema()))
    if dict(_fields(made)) != dict(_fields(json.loads(alteration.schema_json))):
        msg = f"another writer altered table {table} meanwhile"
        raise DestinationConflict(msg)


def _fields(level: Mapping[str, Any]) -> Iterator[tuple[int, tuple[str, str]]]:
    for field in level["fields"]:
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            yield field["id"], (field["name"], "struct")
            yield from _fields(kind)
        else:
            yield field["id"], (field["name"], json.dumps(kind, sort_keys=True).replace(" ", ""))
