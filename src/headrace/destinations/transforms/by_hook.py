"""Transforms by a Python function, `transform(df, table) -> df`: a Spark DataFrame in, another one out, row by row.

The function is called in the driver, for each table version with no rows, to learn what it makes of them, and for each
write with a DataFrame that is not read yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from ...config.transforms import TransformsConfig
from ...errors import ConfigError, DestinationRejected, HeadraceError
from ...events import UNCHANGED, Delete, Insert, OldRowKind, Row, Update
from ...pgtypes.python_values import python_rows
from ...schema import ReplicatedTableSchema, TableName
from ..contract import DestinationContext
from ..rows import RejectedFunction, Rows
from ..unchanged import renumbered
from .contract import RowEvent, Transform
from .events import arrow_rows
from .hooked_frames import transform_changes, transform_rows
from .hooked_table import HookedTable, hooked_table
from .spark_plan import NotRowByRow, origins
from .table_transform import row_schema

__all__ = ["Hook", "HookTransforms"]

Hook = Callable[[DataFrame, TableName], DataFrame]

_ROW_BY_ROW = (
    "use select, withColumn, drop and the like, with functions that give the same for the same row; "
    "the setting `filter` leaves rows out"
)


class HookTransforms:
    """Implements `Transforms`."""

    def __init__(self, config: TransformsConfig) -> None:
        self._hooks: dict[str, Hook] = {
            name: table.function() for name, table in config.tables.items() if table.transform
        }
        self._of: dict[int, Hook | None] = {}
        self._spark: SparkSession | None = None

    def startup(self, context: DestinationContext) -> None:
        self._spark = context.spark

    def of(self, schema: ReplicatedTableSchema) -> Transform | None:
        """By the table's OID, once it was seen under the name that settings give: renamed, it stays what it is."""
        name = schema.table.name
        hook = self._of.setdefault(schema.table.id, self._hooks.get(str(name)))
        if hook is None:
            return None
        assert self._spark is not None, "startup comes first"
        return _HookTransform(self._spark, partial(_called, hook, name), self._made(hook, schema))

    def _made(self, hook: Hook, schema: ReplicatedTableSchema) -> HookedTable:
        assert self._spark is not None
        name = schema.table.name
        given = _frame(self._spark, row_schema(schema).empty_table())
        try:
            result = _called(hook, name, given)
            found = origins(given, result)
        except NotRowByRow as error:
            raise ConfigError(f"the transform of table {name} is not row by row: {error}", hint=_ROW_BY_ROW) from None
        except DestinationRejected as error:
            raise ConfigError(error.message, detail=error.detail, hint=error.hint) from None
        return hooked_table(schema, list(to_arrow_schema(result.schema)), found)


def _called(hook: Hook, name: TableName, frame: DataFrame) -> DataFrame:
    try:
        result: Any = hook(frame, name)
    except HeadraceError:
        raise
    except Exception as error:  # noqa: BLE001 (whatever the user's function raises)
        # No row is in it: the DataFrame is not read yet.
        msg = f"the transform of table {name} failed"
        hint = "correct the function; it is called with a DataFrame of the table's columns and the table's name"
        raise DestinationRejected(msg, detail=f"{type(error).__name__}: {error}".splitlines()[0], hint=hint) from None
    if not isinstance(result, DataFrame):
        msg = f"the transform of table {name} gives {type(result).__name__}, not a DataFrame"
        raise DestinationRejected(msg, hint="return the DataFrame")
    return result


@dataclass(frozen=True, slots=True)
class _HookTransform:
    """Implements `Transform`."""

    spark: SparkSession
    hook: Callable[[DataFrame], DataFrame]
    table: HookedTable

    @property
    def target(self) -> ReplicatedTableSchema:
        return self.table.target

    def rows(self, rows: Rows) -> Rows:
        function = partial(transform_rows, self.hook, self.table)
        return rows.through(function, self.table.fields, self._rejected())

    def changes(self, rows: Rows) -> Rows:
        row = pa.struct(list(self.table.fields))
        after = pa.schema([f.with_type(row) if f.name in ("row", "old") else f for f in rows.arrow_schema])
        through = rows.through(partial(transform_changes, self.hook, self.table), after, self._rejected())
        return through.mapped(partial(_placed, self.table), after, _same)

    def events(self, events: Sequence[RowEvent]) -> Sequence[RowEvent | None]:
        given = [side for event in events for side in _sides(event)]
        made = iter(self._made(given) if given else ())
        return [self._event(event, {id(side): next(made) for side in _sides(event)}) for event in events]

    def follows(self, old: Transform | None) -> bool:
        """Columns that are computed otherwise, or from other types, have other values in rows that are there."""
        before = old.table.computed() if isinstance(old, _HookTransform) else {}
        return all(before.get(attnum) == made for attnum, made in self.table.computed().items())

    def _rejected(self) -> RejectedFunction:
        return partial(_kept_aside, self.table.kept)

    def _made(self, rows: Sequence[Row]) -> Sequence[dict[str, Any]]:
        table = arrow_rows(row_schema(self.table.source), rows)
        result = transform_rows(self.hook, self.table, _frame(self.spark, table)).toArrow()
        return python_rows(result.cast(self.table.fields))

    def _event(self, event: RowEvent, made: Mapping[int, dict[str, Any]]) -> RowEvent:
        target = self.table.target
        if isinstance(event, Insert):
            return replace(event, schema=target, row=made[id(event.row)])
        old = None if event.old is None else made.get(id(event.old)) or self._key(event.old)
        if isinstance(event, Delete):
            return replace(event, schema=target, old=old or {})
        return replace(event, schema=target, row=self._with_unchanged(event.row, made[id(event.row)]), old=old)

    def _key(self, old: Row) -> dict[str, object]:
        kept = self.table.kept
        return {kept[name]: value for name, value in old.items() if name in kept}

    def _with_unchanged(self, row: Row, made: dict[str, Any]) -> dict[str, Any]:
        unsent = {name for name, value in row.items() if value is UNCHANGED}
        if unsent & self.table.mixed:
            raise _undecided(self.table.source.table.name)
        pairs = zip(self.table.target.columns, self.table.origins, strict=True)
        return {c.name: UNCHANGED if o.reads & unsent else made[c.name] for c, o in pairs}


def _sides(event: RowEvent) -> Iterable[Row]:
    """The whole rows of an event; an old key is none."""
    if isinstance(event, Insert | Update):
        yield event.row
    if isinstance(event, Update | Delete) and event.old is not None and event.old_kind is OldRowKind.FULL:
        yield event.old


def _frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


def _placed(table: HookedTable, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Positions of unsent values, counted in the target's columns."""
    names = [column.name for column in table.source.columns]
    mixed = pa.array([i for i, name in enumerate(names) if name in table.mixed], pa.int32())
    unchanged = batch["unchanged"]
    if pc.any(pc.is_in(unchanged.flatten(), mixed)).as_py():
        raise _undecided(table.source.table.name)
    return batch.set_column(
        batch.schema.get_field_index("unchanged"),
        batch.schema.field("unchanged"),
        renumbered(unchanged, table.sources, len(names)),
    )


def _undecided(name: TableName) -> DestinationRejected:
    return DestinationRejected(
        f"the transform of table {name} makes a column of several, of which an update did not send a TOASTed value",
        hint=f"ALTER TABLE {name.quoted} REPLICA IDENTITY FULL, and resync it; or make the column of others",
    )


def _kept_aside(kept: Mapping[str, str], batch: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Values set aside of columns that go on as they are: others may be gone for a reason."""
    del rows
    batch = batch.filter(pc.is_in(batch["column"], pa.array(sorted(kept), pa.string())))
    names = pa.array([kept[name] for name in sorted(kept)], pa.string())
    places = pc.index_in(batch["column"], pa.array(sorted(kept), pa.string()))
    return batch.set_column(batch.schema.get_field_index("column"), batch.schema.field("column"), names.take(places))


def _same(rejected: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    del rows
    return rejected
