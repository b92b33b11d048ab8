"""The columns that a table is to have, of its source's: types, what makes the key, what older rows show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ....config.json_as import JsonAs
from ....pgtypes.registry import conversion_for
from ....schema import Column, ReplicatedTableSchema
from ..partitions import json_value
from ..schema import JSON_TYPES, iceberg_type
from .alteration import CannotAlter
from .field_types import FieldType, is_same_type, widens

__all__ = ["WantedColumn", "wanted_columns"]

_VARIANT = "variant"


@dataclass(frozen=True, slots=True)
class WantedColumn:
    """One column of the source, as the table is to have it."""

    source: Column
    type: FieldType
    """Without ids. Of JSON that is not the key's either text or variant will do, where the column is there already."""
    in_key: bool
    shows_defaults: bool = True
    """Whether the table's format can show a value in rows that are older than the column."""

    @property
    def attnum(self) -> int:
        return self.source.attnum

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def sent_type(self) -> FieldType:
        """The type of its values as they come: of JSON its text."""
        return "string" if self.type == _VARIANT else self.type

    def fits(self, there: FieldType) -> bool:
        """Whether a field of this type holds the column as it is."""
        if not self.in_key and self.source.type.name in JSON_TYPES and there in ("string", _VARIANT):
            return True
        return is_same_type(there, self.type)

    def widens(self, there: FieldType) -> bool:
        return widens(there, self.type)

    def entry(self) -> dict[str, Any]:
        """As a new field."""
        entry: dict[str, Any] = {"name": self.name, "type": self.type}
        return {**entry, "doc": self.source.comment} if self.source.comment else entry

    def entry_for_old_rows(self) -> dict[str, Any]:
        """As a new field that shows, in rows that are there, what the source shows. Raises CannotAlter."""
        if self.source.missing is None:
            return self.entry()
        if not self.shows_defaults:
            self._shown()
            return self.entry()
        value = self._initial()
        return {**self.entry(), "initial-default": value, "write-default": value}

    @property
    def is_filled(self) -> bool:
        """Whether rows that are there have to be written anew, with what the source shows in them."""
        return self.source.missing is not None and not self.shows_defaults

    def _initial(self) -> Any:
        msg = f"column {self.name} has a default that the table cannot show in rows that are there"
        if not isinstance(self.type, str) or self.type == _VARIANT:
            raise CannotAlter(msg)
        try:
            value = self._shown().as_py()
        except (ValueError, OverflowError):
            # Years that Python's dates have not.
            raise CannotAlter(msg) from None
        if isinstance(value, float) and not math.isfinite(value):
            raise CannotAlter(msg)
        return json_value(value)

    def _shown(self) -> pa.Scalar:
        conversion = conversion_for(self.source.type, self.source.typmod)
        converted = conversion.from_text(pa.array([self.source.missing], pa.string()))
        if converted.rejected is not None:
            msg = f"column {self.name} has a default that no value of its type is"
            raise CannotAlter(msg)
        return converted.values[0]


def wanted_columns(
    source: ReplicatedTableSchema, key: Collection[str], json_as: JsonAs, *, shows_defaults: bool = True
) -> tuple[WantedColumn, ...]:
    return tuple(
        WantedColumn(column, _type(column, json_as, in_key=column.name in key), column.name in key, shows_defaults)
        for column in source.columns
    )


def _type(column: Column, json_as: JsonAs, *, in_key: bool) -> FieldType:
    if column.type.name in JSON_TYPES and json_as is JsonAs.VARIANT and not in_key:
        return _VARIANT
    return iceberg_type(conversion_for(column.type, column.typmod).arrow_type, itertools.repeat(0))
