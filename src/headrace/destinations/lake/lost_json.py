"""JSON texts that no VARIANT can hold, found again among the rows they came with: what the quarantine table keeps."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ...schema import ReplicatedTableSchema
from ..row_keys import row_keys
from ..rows import REJECTED_FIELDS
from .variant import variant_array

__all__ = ["LostJson"]


@dataclass(frozen=True, slots=True)
class LostJson:
    """Turns rows into those of `REJECTED_FIELDS`, in a task."""

    source: ReplicatedTableSchema
    columns: tuple[str, ...]
    """Those that are VARIANT."""
    of_changes: bool
    """Whether the rows are changes (`pgoutput.changes`), of which a delete has no new row, or rows of the copy."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = pa.RecordBatch.from_struct_array(batch["row"]) if self.of_changes else batch
        nothing = pa.nulls(batch.num_rows, pa.int64())
        place = [batch["commit_lsn"], batch["tx_ordinal"]] if self.of_changes else [nothing, nothing]
        return pa.concat_batches([self._of_column(rows, name, place) for name in self.columns])

    def _of_column(self, rows: pa.RecordBatch, name: str, place: list[pa.Array]) -> pa.RecordBatch:
        texts = rows.column(name)
        lost = pc.and_(texts.is_valid(), variant_array(texts).is_null())
        keys = row_keys(self.source, rows.filter(lost))
        named = pa.repeat(name, len(keys))
        columns = [keys, named, texts.filter(lost).cast(pa.string()), *(column.filter(lost) for column in place)]
        return pa.RecordBatch.from_arrays(columns, schema=REJECTED_FIELDS)
