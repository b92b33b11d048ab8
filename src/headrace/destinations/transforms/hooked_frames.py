"""A Python function applied to DataFrames: to rows as they are, and to both sides of changes."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ...errors import DestinationRejected
from .hooked_table import OWN_PREFIX, HookedTable
from .spark_plan import NotRowByRow, carrying, require_row_by_row

__all__ = ["transform_changes", "transform_rows"]

FrameHook = Callable[[DataFrame], DataFrame]

_CHANGE, _ROW, _OLD = OWN_PREFIX, f"{OWN_PREFIX}_row", f"{OWN_PREFIX}_old"


def transform_rows(hook: FrameHook, table: HookedTable, frame: DataFrame) -> DataFrame:
    """Whole rows."""
    result = _expected(table, hook(frame))
    try:
        require_row_by_row(frame, result)
    except NotRowByRow as error:
        raise _other_than_before(table, str(error)) from None
    return result


def transform_changes(hook: FrameHook, table: HookedTable, frame: DataFrame) -> DataFrame:
    """Changes: their new rows and whole old ones. An old key keeps its columns, and has no others."""
    names = frame.columns
    changes = frame.select(sf.struct("*").alias(_CHANGE))
    changes = _side(hook, table, changes, "row", _ROW)
    if table.whole_old_rows:
        changes = _side(hook, table, changes, "old", _OLD)
    else:
        changes = changes.withColumn(_OLD, _old_key(table))
    made = {"row": sf.col(_ROW), "old": sf.col(_OLD)}
    return changes.select(*(made.get(name, sf.col(_CHANGE).getField(name)).alias(name) for name in names))


def _side(hook: FrameHook, table: HookedTable, changes: DataFrame, side: str, name: str) -> DataFrame:
    """The changes, with what becomes of one side of them beside them."""
    whole = sf.col(_CHANGE).getField(side)
    given = changes.select(*(whole.getField(column.name).alias(column.name) for column in table.source.columns))
    result = _expected(table, hook(given))
    try:
        beside = carrying(changes, given, result)
    except NotRowByRow as error:
        raise _other_than_before(table, str(error)) from None
    # Cast, for all of them are NULL where there is no such side, also what never is NULL to Spark.
    made = sf.struct(*(sf.col(_quoted(column)).alias(column) for column in result.columns)).cast(_struct(table))
    return beside.select(*changes.columns, sf.when(whole.isNotNull(), made).alias(name))


def _old_key(table: HookedTable) -> Column:
    old = sf.col(_CHANGE).getField("old")
    key = {column.name for column in table.source.identity}
    kept = {name: source for source, name in table.kept.items() if source in key}
    columns = [
        (old.getField(kept[field.name]) if field.name in kept else sf.lit(None).cast(field.dataType)).alias(field.name)
        for field in _struct(table)
    ]
    return sf.when(old.isNotNull(), sf.struct(*columns))


def _struct(table: HookedTable) -> StructType:
    return from_arrow_schema(table.fields, prefer_timestamp_ntz=True)


def _expected(table: HookedTable, result: DataFrame) -> DataFrame:
    expected = [column.name for column in table.target.columns]
    if result.columns != expected:
        raise _other_than_before(table, f"{', '.join(result.columns)} in place of {', '.join(expected)}")
    return result


def _other_than_before(table: HookedTable, what: str) -> DestinationRejected:
    msg = f"the transform of table {table.source.table.name} does something else than it did with no rows"
    return DestinationRejected(msg, detail=what, hint="it must do the same each time: neither count nor look at rows")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
