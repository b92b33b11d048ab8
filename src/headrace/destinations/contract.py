"""The promise of a destination: where rows and events go. This is the file to read before writing one.

The pipeline calls `startup` once; `claim` once it holds the replication slot; then, per table, `drop_table_for_copy`
(if it was there before) and `write_table_rows`; then `write_events`, batch after batch; `flush` before it relies on
anything that was only accepted; `shutdown` once. Duties:

* **Fencing.** A second run of the pipeline may start while this one still works, or is paused. `claim` raises an epoch
  that is kept at the destination, by compare-and-set; every later write checks, within its commit, that the epoch is
  still its own, and raises DestinationFenced without leaving a trace if it is not.
* **Duplicates.** After a crash rows and events come again. A destination that keeps the LSN of a batch in the same
  commit as its rows, and tells it by `applied_lsn`, never sees a change twice. Any other must accept a change with the
  same `(commit_lsn, tx_ordinal)` again without effect.
* **Order.** The changes of a key take effect in the order of `(commit_lsn, tx_ordinal)`, steps in the order given.
* **Concurrency.** Calls for different tables come from several threads at once; calls for one table never overlap.
* **Empty tables.** `write_table_rows` with no rows creates the table all the same.
* **Schema changes.** A `Relation` step means: make the table look like its `new`. It may have been done already.
* **Errors.** Raise a DestinationError: its retry rule decides. Anything else raised is taken for one that is timed.
  A call that raised has left nothing behind that `applied_lsn` or a reader would take for written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from ..events import Relation
from ..lsn import Lsn
from ..schema import ReplicatedTableSchema
from ..stores.contract import StateStore
from .batch import EventBatch
from .rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Destination", "DestinationContext", "Durability", "SourceIdentity"]


class Durability(StrEnum):
    """What a write promises when it returns: safe against any crash, or taken and safe after the next `flush`."""

    DURABLE = "durable"
    ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """Which database the rows come from: the cluster's system identifier and the database's name."""

    system_id: str
    database: str

    def __str__(self) -> str:
        return f"database {self.database} of system {self.system_id}"


def _accept(owner: str) -> None:
    del owner


@dataclass(frozen=True, slots=True)
class DestinationContext:
    """What a destination may use while it is open."""

    pipeline_id: int
    store: StateStore
    """For `DestinationTableMetadata`: which table stands at the destination, in which schema version."""
    spark: SparkSession | Any
    tables: tuple[ReplicatedTableSchema, ...] = ()
    """The published tables as the pipeline starts, so that what is wrong with a setting is told before any write."""
    quarantine: bool = True
    """Whether a value that no type of the destination holds is put aside; False: it is an error."""
    source: SourceIdentity | None = None
    """The source; None where no server is asked, as in a replay."""
    run_id: str = ""
    """What this start of the driver is, with its process and host; no two are the same. Shown to whom it replaces."""
    check_owner: Callable[[str], None] = _accept
    """Call it in `claim`, before the epoch is raised, with the source that the record names, if it names one.

    It raises PipelineStateError where the pipeline that owns the tables must not be replaced: by a replay, while it
    runs.
    """


class Destination(Protocol):
    """Where a pipeline writes to."""

    name: str
    """A short word for logs and metrics: `iceberg`, `stdout`."""

    whole_batches: bool
    """False: each `write_events` has one table's part of a batch, tables side by side, and a table that fails takes out
    itself only. True: it has all tables, for destinations that need the order across tables or commit all in one. Then
    a DestinationError with a `table_id` takes out that table, and the batch comes again without it; others stop all."""

    def startup(self, context: DestinationContext) -> None:
        """Open connections and check settings. Nothing else is called before.

        Change nothing durable: another run of the pipeline may be writing. What a crash left is cleaned up by `claim`.
        """

    def claim(self) -> None:
        """Take the destination over from any other run of this pipeline, then clean up what a crash left.

        Called once, before any other write. Raise the epoch in the destination's own record by compare-and-set, and
        record `context.source` and `context.run_id` with it. Raise DestinationRejected if the record is of another
        source, and call `context.check_owner` with the one it names. A destination that cannot fence does nothing here,
        and says so in its documentation.
        """

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        """Up to where the table's events are durable, by a record kept here, which wins over the store; None: none."""

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        """The durable parts of the table's copy, by a record kept here; None: it keeps none, and no copy is resumed."""

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        """Forget the table's LSN and parts, because it is copied anew; repeatable, also without a table.

        Its rows go at the latest when the new copy's first part comes; best in one with it, so that readers see no gap.
        A log of changes keeps them: the new copy is added to it, behind a row that says that all before is gone.
        """

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        """Remove the table, because its source left the publication; repeatable, also without a table."""

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        """Create the table if it is not there and add rows of the initial copy, and record the part with them.

        A copy under one snapshot is one part; one by key ranges has many, one call after the other. `part` is a number
        below 2^33 without further meaning; no two copies of a table use the same numbers.
        """

    def follows(self, relation: Relation) -> bool:
        """Whether the table can be altered so that existing rows are right; False: it is copied again.

        It cannot if `relation.rewritten`, where a table shows current rows; a log of changes may go on.
        """

    def write_events(self, batch: EventBatch) -> Durability:
        """Apply the steps of each table of the batch, and record `batch.end` with them."""

    def flush(self) -> None:
        """Return when everything accepted before is durable."""

    def shutdown(self) -> None:
        """Close; everything was flushed. Called once, also after an error."""
