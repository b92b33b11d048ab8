"""Every metric there is: name, labels, meaning. `metrics.Metrics` records them; the reference is made from here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ALL_METRICS", "CONSTANT_LABELS", "LABELS", "Kind", "Metric"]


class Kind(StrEnum):
    """Prometheus's kinds of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


# A batch takes tens of milliseconds into memory and minutes into a busy warehouse.
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
COPY_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0)
BYTES = tuple(float(1 << exponent) for exponent in range(12, 31, 2))


@dataclass(frozen=True, slots=True)
class Metric:
    """A name that dashboards may rely on. `labels` come after the constant ones."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


CONSTANT_LABELS = ("pipeline_id", "destination")

LABELS = {
    "pipeline_id": "the pipeline's `id`",
    "destination": "the destination's kind, or its name where there are several; what they share then has none",
    "table": "the source table, as `schema.table`",
    "op": "`insert`, `update`, `delete` or `truncate`",
    "state": "a state in the life of a table: `init`, `data_sync`, … `errored`",
    "kind": "the kind of error, as in the list of errors",
    "position": "`received`, `spooled`, `applied` or `confirmed`",
    "direction": "`activated` or `resumed`",
}

COPIED_ROWS = Metric("headrace_copied_rows_total", Kind.COUNTER, "Rows copied to the destination.", ("table",))
COPIED_BYTES = Metric("headrace_copied_bytes_total", Kind.COUNTER, "Bytes copied, as COPY sent them.", ("table",))
COPY_RANGES_PLANNED = Metric(
    "headrace_copy_ranges_planned", Kind.GAUGE, "Ranges that the latest copy of the table was cut into.", ("table",)
)
COPY_RANGES_DONE = Metric(
    "headrace_copy_ranges_done",
    Kind.GAUGE,
    "Ranges of the latest copy that are durable at the destination.",
    ("table",),
)
COPY_SECONDS_SPENT = Metric(
    "headrace_copy_duration_seconds", Kind.HISTOGRAM, "How long whole copies of tables took.", ("table",), COPY_SECONDS
)
STREAMED_ROWS = Metric(
    "headrace_streamed_rows_total", Kind.COUNTER, "Changes applied by the destination, before folding.", ("table", "op")
)
STREAMED_BYTES = Metric(
    "headrace_streamed_bytes_total", Kind.COUNTER, "Bytes of the applied changes, as pgoutput sent them.", ("table",)
)
BATCHES = Metric("headrace_batches_total", Kind.COUNTER, "Batches applied by the destination.")
BATCH_SECONDS = Metric(
    "headrace_batch_duration_seconds",
    Kind.HISTOGRAM,
    "How long batches took, from their first segment to stored progress.",
    buckets=SECONDS,
)
BATCH_BYTES = Metric("headrace_batch_bytes", Kind.HISTOGRAM, "Bytes of raw WAL in a batch.", buckets=BYTES)
WRITE_SECONDS = Metric(
    "headrace_write_duration_seconds",
    Kind.HISTOGRAM,
    "How long the destination took to write one table's part of a batch.",
    ("table",),
    SECONDS,
)
RECEIVED_LAG = Metric(
    "headrace_received_lag_bytes", Kind.GAUGE, "WAL that the source has written and the receiver has not received."
)
FLUSHED_LAG = Metric(
    "headrace_flushed_lag_bytes", Kind.GAUGE, "WAL that was received and is not yet durable in the spool."
)
APPLIED_LAG = Metric("headrace_applied_lag_bytes", Kind.GAUGE, "WAL that is in the spool and not yet applied.")
END_TO_END_LAG = Metric(
    "headrace_end_to_end_lag_bytes", Kind.GAUGE, "WAL that the source has written and the destination has not applied."
)
LAG_SECONDS = Metric(
    "headrace_lag_seconds", Kind.GAUGE, "Age of the oldest committed change that is not applied; 0 when there is none."
)
PROGRESS = Metric(
    "headrace_progress_lsn", Kind.GAUGE, "Position in the WAL, in bytes from its beginning.", ("position",)
)
DESTINATION_RUNNING = Metric(
    "headrace_destination_running", Kind.GAUGE, "1 while the destination is written to, 0 while it is out of order."
)
TABLES = Metric("headrace_tables", Kind.GAUGE, "Tables in each state.", ("state",))
TABLE_ERRORS = Metric("headrace_table_errors_total", Kind.COUNTER, "Failures of a table.", ("table", "kind"))
TABLE_RETRIES = Metric("headrace_table_retries_total", Kind.COUNTER, "Timed retries of a failed table.", ("table",))
QUARANTINED = Metric(
    "headrace_quarantined_values_total",
    Kind.COUNTER,
    "Values that the destination's type cannot hold, written as NULL and noted in the quarantine table.",
    ("table",),
)
SLOT_RETAINED = Metric("headrace_slot_retained_bytes", Kind.GAUGE, "WAL that the source keeps on disk for the slot.")
SPOOL_BYTES = Metric(
    "headrace_spool_bytes",
    Kind.GAUGE,
    "Bytes of segments in the spool, those kept for a while after they were applied too.",
)
RECONNECTS = Metric(
    "headrace_receiver_reconnects_total", Kind.COUNTER, "Connections of the receiver that broke and were made anew."
)
MEMORY_RATIO = Metric(
    "headrace_memory_used_ratio", Kind.GAUGE, "Share of all memory in use by this process and its children."
)
BACKPRESSURE = Metric(
    "headrace_memory_backpressure_active", Kind.GAUGE, "1 while reading pauses for want of memory, else 0."
)
BACKPRESSURE_TRANSITIONS = Metric(
    "headrace_memory_backpressure_transitions_total",
    Kind.COUNTER,
    "How often memory backpressure began and ended.",
    ("direction",),
)

ALL_METRICS = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
