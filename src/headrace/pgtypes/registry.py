"""Which conversion a column has: the one place where Postgres's types are mapped to Arrow's.

boolean, smallint, integer, bigint     bool, int16, int32, int64
oid                                    int64
real, double precision                 float32, float64
numeric(p, s)                          decimal128(p, s) where p <= 38 and 0 <= s <= p, else string
bytea                                  binary
date, timestamp, timestamptz           date32, timestamp[us], timestamp[us, UTC]
T[]                                    list<T>
hstore                                 map<string, string>
a domain                               what its base type has
anything else                          string: Postgres's text, byte for byte

A column of a key with a value that its Arrow type cannot hold is a string as well (`PgType.as_text`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..schema import PgType
from .array import ArrayConversion
from .boolean import BooleanConversion
from .bytea import ByteaConversion
from .contract import Conversion
from .datetime import DateConversion, TimestampConversion
from .hstore import HstoreConversion
from .number import NumberConversion
from .numeric import DecimalConversion, numeric_conversion
from .oids import builtin_type
from .text import TextConversion

__all__ = ["TypeOptions", "builtin_type", "conversion_for", "unrepresentable_values"]

_FIRST_OID_OF_USERS = 16_384

_TYPED: dict[str, Conversion] = {
    "bool": BooleanConversion(),
    "int2": NumberConversion("smallint", "int16"),
    "int4": NumberConversion("integer", "int32"),
    "int8": NumberConversion("bigint", "int64"),
    "oid": NumberConversion("oid", "int64"),
    "float4": NumberConversion("real", "float32"),
    "float8": NumberConversion("double precision", "float64"),
    "bytea": ByteaConversion(),
    "date": DateConversion(),
    "timestamp": TimestampConversion(zoned=False),
    "timestamptz": TimestampConversion(zoned=True),
}

_TEXT = TextConversion()


@dataclass(frozen=True, slots=True)
class TypeOptions:
    """Choices a pipeline may make.

    `numeric_without_scale` is (precision, scale) of the decimal that a numeric column without them becomes; None keeps
    its text.
    """

    numeric_without_scale: tuple[int, int] | None = None
    text_columns: frozenset[str] = frozenset()
    """Columns whose values are kept as text, whatever their type."""


_DEFAULTS = TypeOptions()


def conversion_for(type: PgType, typmod: int = -1, options: TypeOptions = _DEFAULTS) -> Conversion:
    """The conversion of a column of this type and typmod. Every type has one; an unknown type keeps its text."""
    if type.as_text:
        return _TEXT
    if type.kind == "d" and type.base is not None:
        return conversion_for(type.base, type.base_typmod, options)
    if type.oid < _FIRST_OID_OF_USERS:
        return _builtin(type, typmod, options)
    if type.element is not None:
        return _array(type.element, typmod, options)
    # A type of an extension is known by name: its OID is another one in every database.
    return HstoreConversion() if type.kind == "b" and type.name == "hstore" else _TEXT


def unrepresentable_values(type: PgType, typmod: int = -1, options: TypeOptions = _DEFAULTS) -> str | None:
    """Say which values the Arrow type of a column cannot hold; None if it holds all of them."""
    conversion = conversion_for(type, typmod, options)
    if isinstance(conversion, (DateConversion, TimestampConversion)):
        return "infinity, or a year before 1 or after 9999"
    if isinstance(conversion, DecimalConversion):
        return "NaN or an infinity"
    if isinstance(conversion, ArrayConversion):
        return "an array of several dimensions, with bounds of its own, or with an element that has no equal in a list"
    return None


def _builtin(type: PgType, typmod: int, options: TypeOptions) -> Conversion:
    if type.name == "numeric":
        return numeric_conversion(typmod, options.numeric_without_scale)
    if type.name in _TYPED:
        return _TYPED[type.name]
    # point, name, int2vector and others have an element for subscripting only: an array's name begins with "_".
    if type.element is not None and type.name.startswith("_"):
        return _array(type.element, typmod, options)
    return _TEXT


def _array(element: PgType, typmod: int, options: TypeOptions) -> ArrayConversion:
    return ArrayConversion(conversion_for(element, typmod, options), element.delimiter, f"{element.name}[]")
