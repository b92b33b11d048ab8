"""A transform function of the user: `transform(batch: pyarrow.RecordBatch, table: TransformTable) -> RecordBatch`.

It travels to tasks by name and is imported there.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import Any

import pyarrow as pa

from ...config.references import named_function
from ...errors import ConfigError, DestinationRejected, HeadraceError
from ...remedies import RESYNC
from ...schema import ReplicatedTableSchema

__all__ = ["Hook", "TransformTable"]

_HINT = f"correct the function, which is called with a pyarrow.RecordBatch and the table, restart, then run: {RESYNC}"


@dataclass(frozen=True, slots=True)
class TransformTable:
    """The table whose rows a transform function gets; `str()` of it is `schema.name`."""

    schema: str
    name: str
    columns: tuple[str, ...]
    """What the function is given, in order; a batch may lack columns whose values an update did not send."""
    key: tuple[str, ...]
    """The columns that identify a row: the function must return them as they are."""

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Hook:
    """The function under its name, with the directory that the driver found its module in."""

    reference: str
    directory: str

    @classmethod
    def named(cls, reference: str) -> Hook:
        """Find the function. Raises ConfigError if it is not there."""
        named_function(reference, f"the transform {reference}")
        module = sys.modules[reference.partition(":")[0]]
        file = getattr(module, "__file__", None)
        if file is None:
            return cls(reference, "")
        # The file of a package is one level deeper than that of a module.
        depth = module.__name__.count(".") + (2 if hasattr(module, "__path__") else 1)
        return cls(reference, os.path.abspath(os.path.join(file, *[os.pardir] * depth)))

    def called(self, batch: pa.RecordBatch, schema: ReplicatedTableSchema) -> pa.RecordBatch:
        """Call the function with rows. Raises DestinationRejected, without its message, if it fails."""
        return self._called(batch, schema, quote=False)

    def sampled(self, batch: pa.RecordBatch, schema: ReplicatedTableSchema) -> pa.RecordBatch:
        """Call the function with sample rows, which its message may quote."""
        return self._called(batch, schema, quote=True)

    def _called(self, batch: pa.RecordBatch, schema: ReplicatedTableSchema, *, quote: bool) -> pa.RecordBatch:
        function, name = self._function(schema), schema.table.name
        key = tuple(column.name for column in schema.found_by)
        table = TransformTable(name.schema, name.name, tuple(column.name for column in schema.columns), key)
        try:
            result: Any = function(batch, table)
        except HeadraceError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever the user's function raises)
            told = f"{type(error).__name__}: {error}".splitlines()[0] if quote else type(error).__name__
            detail = told + _place(error)
            raise DestinationRejected(f"{self.of(schema)} failed", detail=detail, hint=_HINT) from None
        if not isinstance(result, pa.RecordBatch):
            msg = f"{self.of(schema)} returns {type(result).__name__}, not a pyarrow.RecordBatch"
            raise DestinationRejected(
                msg, hint="return a RecordBatch, such as `table.combine_chunks().to_batches()[0]`"
            )
        if len(result) != len(batch):
            msg = f"{self.of(schema)} returns {len(result)} rows for {len(batch)}"
            hint = "return a row for each row, in their order; the setting `filter` leaves rows out"
            raise DestinationRejected(msg, hint=hint)
        twice = [column for column, count in Counter(result.schema.names).items() if count > 1]
        if twice:
            msg = f"{self.of(schema)} returns two columns with the name {twice[0]}"
            raise DestinationRejected(msg, hint="give each column a name of its own")
        return result

    def of(self, schema: ReplicatedTableSchema) -> str:
        """What errors call the function."""
        return f"the transform {self.reference} of table {schema.table.name}"

    def _function(self, schema: ReplicatedTableSchema) -> Any:
        module = self.reference.partition(":")[0]
        try:
            import_module(module)
        except ModuleNotFoundError:
            # Local tasks have the driver's files, though not its path.
            if self.directory and self.directory not in sys.path:
                sys.path.append(self.directory)
        try:
            return named_function(self.reference, f"the transform {self.reference}")
        except ConfigError as error:
            hint = f"install {module} where tasks run, or ship it: spark.conf, spark.submit.pyFiles"
            msg = f"{self.of(schema)} is not there: {error.message}"
            raise DestinationRejected(msg, detail=error.detail, hint=hint) from None


def _place(error: BaseException) -> str:
    """The last line of the user's module that the error passed, without values."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    return f" at {PurePath(own[-1].filename).name}:{own[-1].lineno} {own[-1].name}" if own else ""
