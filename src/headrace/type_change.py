"""What becomes of a column's values when its type changes: the same, the same in a wider type, or nobody can say.

Only conversions that Postgres itself defines and that cannot be replaced are relied on. A cast from an enum to text,
for one, may be a function of somebody's own.
"""

from __future__ import annotations

from enum import Enum

from .schema import Column, PgType

__all__ = ["TypeChange", "type_change", "type_differs", "type_text"]

_FIRST_OID_OF_USERS = 16_384
_MAX_DECIMAL_PRECISION = 38
_MAX_FRACTION = 6
"""Digits of a second's fraction that a time without a precision has, and the most there are."""
_FULL_RANGE = 0x7FFF
"""What an interval without a restriction of its fields has in the upper half of its typmod."""

_INTEGERS = ("int2", "int4", "int8")
_FLOATS = ("float4", "float8")
_STRINGS = ("varchar", "text")
_TIMES = ("timestamp", "timestamptz", "time", "timetz")
_SQL_NAMES = {
    "bool": "boolean", "int2": "smallint", "int4": "integer", "int8": "bigint", "float4": "real",
    "float8": "double precision", "bpchar": "char",
}  # fmt: skip


class TypeChange(Enum):
    """What a destination must do so that the rows it has equal the source's."""

    SAME = "same"
    """Nothing: the type it stores is the same one, and so is every value."""
    WIDER = "wider"
    """Widen the type: int16 to int32 to int64, float to double, a decimal to more digits. No value changes."""
    OTHER = "other"
    """The values may be others: they must be read again."""


def type_differs(old: Column, new: Column) -> bool:
    """Whether type or typmod are others. The mere name of a type of one's own does not count."""
    return old.typmod != new.typmod or _essence(old.type) != _essence(new.type)


def type_change(old: Column, new: Column) -> TypeChange:
    """What a change from one type to the other does to values, if no USING clause had a hand in it."""
    return _change(old.type, old.typmod, new.type, new.typmod)


def type_text(column: Column) -> str:
    """A column's type as one would write it: `numeric(10,2)`, `varchar(20)[]`."""
    name = _type_text(column.type, column.typmod)
    return name if column.type.schema in ("pg_catalog", "public", "") else f"{column.type.schema}.{name}"


def _essence(type: PgType | None) -> tuple[object, ...]:
    """All of a type that decides what a value means. Extensions' types are known by name, so theirs counts."""
    if type is None:
        return ()
    name = type.name if type.kind == "b" else ""
    parts = (_essence(type.element), _essence(type.base))
    return (type.oid, type.kind, name, type.base_typmod, type.delimiter, type.members, type.as_text, *parts)


def _change(old: PgType, old_typmod: int, new: PgType, new_typmod: int) -> TypeChange:
    (old, old_typmod), (new, new_typmod) = _stored(old, old_typmod), _stored(new, new_typmod)
    if old_typmod == new_typmod and _essence(old) == _essence(new):
        return TypeChange.SAME
    if old.element is not None and new.element is not None:
        if not (_is_array(old) and _is_array(new)):
            return TypeChange.OTHER
        # A list of wider elements is another type nearly everywhere.
        elements = _change(old.element, old_typmod, new.element, new_typmod)
        same = elements is TypeChange.SAME and old.element.delimiter == new.element.delimiter
        return TypeChange.SAME if same else TypeChange.OTHER
    if old.oid >= _FIRST_OID_OF_USERS or new.oid >= _FIRST_OID_OF_USERS:
        grown = old.oid == new.oid and old.kind == new.kind == "e" and _grown(old.members, new.members)
        return TypeChange.SAME if grown else TypeChange.OTHER
    return _builtin_change(old.name, old_typmod, new.name, new_typmod)


def _stored(type: PgType, typmod: int) -> tuple[PgType, int]:
    """The type that a domain stands for: a domain's values are its base's."""
    while type.kind == "d" and type.base is not None:
        type, typmod = type.base, type.base_typmod
    return type, typmod


def _is_array(type: PgType) -> bool:
    return type.oid >= _FIRST_OID_OF_USERS or type.name.startswith("_")


def _grown(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Whether labels were only added. Postgres cannot reorder labels: those in another order were renamed."""
    remaining = iter(new)
    return all(label in remaining for label in old)


def _builtin_change(old: str, old_typmod: int, new: str, new_typmod: int) -> TypeChange:
    for family in (_INTEGERS, _FLOATS):
        if old in family and new in family:
            return TypeChange.WIDER if family.index(new) > family.index(old) else TypeChange.OTHER
    if old == new == "numeric":
        return _numeric_change(old_typmod, new_typmod)
    if old == new == "interval":
        return _same_if(_interval_holds(old_typmod, new_typmod))
    # A typmod of text means nothing. char(n) is not here: it pads, and its cast to text strips.
    if old in _STRINGS and new in _STRINGS:
        return _same_if(_holds(old_typmod if old == "varchar" else -1, new_typmod if new == "varchar" else -1))
    if old == new and old in _TIMES:
        return _same_if(_holds(_MAX_FRACTION if old_typmod < 0 else old_typmod, new_typmod))
    if old == new == "varbit":
        return _same_if(_holds(old_typmod, new_typmod))
    return TypeChange.OTHER


def _same_if(holds: bool) -> TypeChange:
    return TypeChange.SAME if holds else TypeChange.OTHER


def _holds(old_typmod: int, new_typmod: int) -> bool:
    """Whether the new limit, of length or of fractional digits, is none or no lower."""
    return new_typmod < 0 or 0 <= old_typmod <= new_typmod


def _numeric_change(old_typmod: int, new_typmod: int) -> TypeChange:
    # What a numeric without precision is stored as is the pipeline's choice, so nothing is said of it here.
    if old_typmod < 0 or new_typmod < 0:
        return TypeChange.OTHER
    (old_precision, old_scale), (precision, scale) = _precision_and_scale(old_typmod), _precision_and_scale(new_typmod)
    if scale != old_scale or precision < old_precision:
        return TypeChange.OTHER
    before, after = _is_decimal(old_precision, scale), _is_decimal(precision, scale)
    if before != after:
        return TypeChange.OTHER
    return TypeChange.WIDER if after else TypeChange.SAME


def _precision_and_scale(typmod: int) -> tuple[int, int]:
    """As numeric.c packs them behind a 4-byte header: 16 bits of precision, 11 of scale, the scale signed."""
    packed = typmod - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


def _is_decimal(precision: int, scale: int) -> bool:
    return precision <= _MAX_DECIMAL_PRECISION and 0 <= scale <= precision


def _interval_holds(old_typmod: int, new_typmod: int) -> bool:
    if new_typmod < 0 or old_typmod < 0:
        return new_typmod < 0
    same_fields = new_typmod >> 16 in (old_typmod >> 16, _FULL_RANGE)
    # No precision is 0xFFFF, above all others.
    return same_fields and old_typmod & 0xFFFF <= new_typmod & 0xFFFF


def _type_text(type: PgType, typmod: int) -> str:
    if type.element is not None and _is_array(type):
        return f"{_type_text(type.element, typmod)}[]"
    if type.oid >= _FIRST_OID_OF_USERS:
        return type.name
    name = _SQL_NAMES.get(type.name, type.name)
    if typmod < 0:
        return name
    if name == "numeric":
        precision, scale = _precision_and_scale(typmod)
        return f"numeric({precision},{scale})"
    if name in ("varchar", "char"):
        return f"{name}({typmod - 4})"
    return f"{name}({typmod})" if name in (*_TIMES, "bit", "varbit") else name
