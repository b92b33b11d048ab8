"""What a table says of the pipeline that writes it: kept in its properties, and in the summary of each snapshot.

Both are written in the commit of the rows they speak of. The summary of the newest snapshot that has one is believed;
the properties stand in for it when all such snapshots have expired.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...lsn import INVALID_LSN, Lsn
from ..copied_parts import read_parts, write_parts

__all__ = ["COPY_AGAIN", "SCHEMA_VERSION", "TABLE_ID", "Record", "version_of"]

PIPELINE = "headrace.pipeline-id"
SOURCE = "headrace.source-table"
LSN = "headrace.lsn"
PARTS = "headrace.copied-parts"
TABLE_ID = "headrace.table-id"
"""The source table's OID, which stays the same when it is renamed."""
SCHEMA_VERSION = "headrace.schema-version"
"""Since which commit the source table has looked as the table does now; 0/0: since it was copied. Of
a log whose source was copied again, the copy's position in it.
"""
COPY_AGAIN = "headrace.copy-again"
"""There while a new copy is under way, whose first part replaces all that the table holds; in a log of changes it is
added. Until then readers see the rows of before, and for the pipeline nothing is there.
"""


@dataclass(frozen=True, slots=True)
class Record:
    """`lsn` None: no events yet. `parts` are those of the initial copy that are in the table.

    `stale`: what the table holds is to be replaced by a new copy. `left` is its LSN of before, 0/0 if no events came
    since it was copied.
    """

    pipeline_id: int | None = None
    lsn: Lsn | None = None
    parts: frozenset[int] = frozenset()
    stale: bool = False
    left: Lsn | None = None

    @property
    def is_blank(self) -> bool:
        """Nothing was ever committed but the table itself."""
        return self.lsn is None and not self.parts and self.left is None

    @classmethod
    def read(cls, properties: Mapping[str, str], summary: Mapping[str, str] | None) -> Record:
        """From the properties, and from the newest summary with an LSN or parts, if one is left."""
        source = summary or properties
        pipeline, lsn = properties.get(PIPELINE), source.get(LSN)
        pipeline_id = int(pipeline) if pipeline is not None and pipeline.isdigit() else None
        found = cls(pipeline_id, Lsn.parse(lsn) if lsn else None, read_parts(source.get(PARTS, "")))
        if COPY_AGAIN in properties:
            return cls(pipeline_id, stale=True, left=None if found.is_blank else found.lsn or INVALID_LSN)
        return found

    def summary(self) -> dict[str, str]:
        values = {PIPELINE: str(self.pipeline_id), PARTS: write_parts(self.parts)}
        return values if self.lsn is None else values | {LSN: str(self.lsn)}


def version_of(properties: Mapping[str, str]) -> Lsn:
    """The schema version. Tables of earlier versions do not tell."""
    return Lsn.parse(properties.get(SCHEMA_VERSION, str(INVALID_LSN)))
