"""What rows that are there show in a column that is new, as SQL."""

from __future__ import annotations

import pyarrow as pa

from ...pgtypes.registry import conversion_for
from .alteration import CannotAlter
from .columns import WantedColumn
from .database import Session
from .places import literal

__all__ = ["existing_default", "typed"]

_VALUE = "_headrace_value"


def existing_default(session: Session, column: WantedColumn, kind: str, *, nested: bool) -> str | None:
    """The value as a literal for DEFAULT; None: NULL. Raises CannotAlter where no literal is that value.

    `kind` is the type that the column has now, in which the value may have other digits. `nested`: whether a list or a
    map can be a default at all.
    """
    if column.source.missing is None:
        return None
    msg = f"column {column.name} has a default that cannot be shown in rows that are there"
    conversion = conversion_for(column.source.type, column.source.typmod)
    converted = conversion.from_text(pa.array([column.source.missing], pa.string()))
    is_nested = pa.types.is_nested(conversion.arrow_type)
    if converted.rejected is not None or (is_nested and not nested):
        raise CannotAlter(msg)
    with session.given(_VALUE, pa.table({"value": converted.values})):
        value = typed("value", kind)
        ((text,),) = session.rows(f"SELECT CAST({value} AS VARCHAR) FROM {_VALUE}")
        if text is None:
            return None
        same = f"SELECT {typed(literal(text), kind)} IS NOT DISTINCT FROM {value} FROM {_VALUE}"
        if session.rows(same) != [(True,)]:
            raise CannotAlter(msg)
    return typed(literal(text), kind) if is_nested else literal(text)


def typed(expression: str | None, kind: str) -> str:
    return f"CAST({expression or 'NULL'} AS {kind})"
