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
"""

from __future__ import annotations

from dataclasses import dataclass

from ..schema import PgType
from .array import ArrayConversion
from .bit import print_bits
from .boolean import BooleanConversion
from .bytea import ByteaConversion
from .contract import Conversion
from .datetime import DateConversion, TimestampConversion
from .floating import FloatConversion
from .hstore import HstoreConversion
from .integer import IntegerConversion
from .json import print_versioned
from .network import print_cidr, print_inet, print_macaddr, print_macaddr8
from .numeric import numeric_conversion
from .oids import builtin_type, range_bound
from .range import MultirangePrinter, RangePrinter
from .system import print_char, print_lsn, print_tid, print_xid, print_xid8
from .text import TextConversion, print_text
from .time import print_interval, print_time, print_timetz
from .uuid import print_uuid

__all__ = ["TypeOptions", "builtin_type", "conversion_for", "supports_binary"]

_FIRST_OID_OF_USERS = 16_384

_PRINTERS = {
    "text": print_text, "varchar": print_text, "bpchar": print_text, "name": print_text, "unknown": print_text,
    "refcursor": print_text, "json": print_text, "xml": print_text, "jsonb": print_versioned, "jsonpath":
    print_versioned, "uuid": print_uuid, "time": print_time, "timetz": print_timetz, "interval": print_interval,
    "bit": print_bits, "varbit": print_bits, "inet": print_inet, "cidr": print_cidr,
    "macaddr": print_macaddr, "macaddr8": print_macaddr8, "char": print_char, "xid": print_xid, "cid": print_xid,
    "xid8": print_xid8, "tid": print_tid, "pg_lsn": print_lsn,
}  # fmt: skip

_TYPED: dict[str, Conversion] = {
    "bool": BooleanConversion(),
    "int2": IntegerConversion("smallint", ">i2", "int16"),
    "int4": IntegerConversion("integer", ">i4", "int32"),
    "int8": IntegerConversion("bigint", ">i8", "int64"),
    "oid": IntegerConversion("oid", ">u4", "int64"),
    "float4": FloatConversion("real", ">f4", "float32", 6),
    "float8": FloatConversion("double precision", ">f8", "float64", 15),
    "bytea": ByteaConversion(),
    "date": DateConversion(),
    "timestamp": TimestampConversion(zoned=False),
    "timestamptz": TimestampConversion(zoned=True),
}

# Types of extensions are known by name: their OID is another one in every database.
_EXTENSIONS: dict[str, Conversion] = {
    "hstore": HstoreConversion(),
    "citext": TextConversion("citext", print_text),
    "ltree": TextConversion("ltree", print_versioned),
    "lquery": TextConversion("lquery", print_versioned),
    "ltxtquery": TextConversion("ltxtquery", print_versioned),
}


@dataclass(frozen=True, slots=True)
class TypeOptions:
    """Choices a pipeline may make.

    `numeric_without_scale` is (precision, scale) of the decimal that a numeric column without them becomes; None keeps
    its text.
    """

    numeric_without_scale: tuple[int, int] | None = None


_DEFAULTS = TypeOptions()


def conversion_for(type: PgType, typmod: int = -1, options: TypeOptions = _DEFAULTS) -> Conversion:
    """The conversion of a column of this type and typmod. Every type has one; an unknown type keeps its text."""
    if type.kind == "d" and type.base is not None:
        return conversion_for(type.base, type.base_typmod, options)
    if type.kind == "e":
        return TextConversion(type.name, print_text)
    if type.oid < _FIRST_OID_OF_USERS:
        return _builtin(type, typmod, options)
    if type.element is not None:
        return _array(type.element, typmod, options)
    if type.kind == "b" and type.name in _EXTENSIONS:
        return _EXTENSIONS[type.name]
    return TextConversion(type.name, None)


def supports_binary(type: PgType) -> bool:
    """Whether values of this type can be read in the binary form; if not, the table must be streamed as text."""
    return conversion_for(type).supports_binary


def _builtin(type: PgType, typmod: int, options: TypeOptions) -> Conversion:
    if type.name == "numeric":
        return numeric_conversion(typmod, options.numeric_without_scale)
    if type.name in _TYPED:
        return _TYPED[type.name]
    # point, name, int2vector and others have an element for subscripting only: an array's name begins with "_".
    if type.element is not None and type.name.startswith("_"):
        return _array(type.element, typmod, options)
    if type.kind == "r":
        return TextConversion(type.name, _range_printer(type))
    if type.kind == "m":
        of = range_bound(type.oid)
        printer = _range_printer(of) if of else None
        return TextConversion(type.name, MultirangePrinter(printer) if printer else None)
    return TextConversion(type.name, _PRINTERS.get(type.name))


def _array(element: PgType, typmod: int, options: TypeOptions) -> ArrayConversion:
    return ArrayConversion(conversion_for(element, typmod, options), element.delimiter, f"{element.name}[]")


def _range_printer(type: PgType) -> RangePrinter | None:
    bound = range_bound(type.oid)
    return RangePrinter(conversion_for(bound)) if bound else None
