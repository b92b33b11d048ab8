"""Records what a pipeline does, for Prometheus. Callers give counts: nothing here runs per row.

Each pipeline has a registry of its own, so that several in one process do not collide.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from ..errors import ConfigError
from ..lsn import Lsn
from ..schema import TableName
from ..table_state import State
from . import metric_table as names
from .metric_table import ALL_METRICS, CONSTANT_LABELS, Kind, Metric

__all__ = ["Lag", "Metrics", "MetricsServer"]

_log = structlog.get_logger("headrace.metrics")


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind the pipeline is; None where nobody knows, and then no sample is shown."""

    received_bytes: int | None = None
    flushed_bytes: int | None = None
    applied_bytes: int | None = None
    end_to_end_bytes: int | None = None
    seconds: float | None = None


class Metrics:
    """The metrics of one pipeline. Every method may be called from any thread."""

    def __init__(self, pipeline_id: int, destination: str, *, within: Metrics | None = None) -> None:
        """`within`: those of the pipeline, whose registry several destinations share; they have no destination."""
        self.registry: CollectorRegistry = CollectorRegistry(auto_describe=True) if within is None else within.registry
        self._constant = (str(pipeline_id), destination)
        self._collectors: dict[str, Any] = (
            {metric.name: self._collector(metric) for metric in ALL_METRICS} if within is None else within._collectors
        )
        if within is None:
            for metric in (names.BACKPRESSURE, names.RECONNECTS):
                self._of(metric)
        if destination:
            self._of(names.BATCHES)
            self.tables({})

    def _collector(self, metric: Metric) -> Any:
        labels = (*CONSTANT_LABELS, *metric.labels)
        if metric.kind is Kind.HISTOGRAM:
            return Histogram(metric.name, metric.help, labels, registry=self.registry, buckets=metric.buckets)
        kind = Counter if metric.kind is Kind.COUNTER else Gauge
        return kind(metric.name, metric.help, labels, registry=self.registry)

    def _of(self, metric: Metric, *labels: object) -> Any:
        return self._collectors[metric.name].labels(*self._constant, *map(str, labels))

    def _set(self, metric: Metric, value: float | None) -> None:
        if value is None:
            with contextlib.suppress(KeyError):
                self._collectors[metric.name].remove(*self._constant)
        else:
            self._of(metric).set(value)

    # -- initial copy -------------------------------------------------------------------------------------------

    def copy_planned(self, table: TableName, ranges: int, done: int = 0) -> None:
        """A copy begins, or goes on with `done` ranges of an earlier life."""
        self._of(names.COPY_RANGES_PLANNED, table).set(ranges)
        self._of(names.COPY_RANGES_DONE, table).set(done)

    def copied(self, table: TableName, rows: int, size: int, ranges: int = 1) -> None:
        """Ranges became durable: their rows and bytes."""
        self._of(names.COPIED_ROWS, table).inc(rows)
        self._of(names.COPIED_BYTES, table).inc(size)
        self._of(names.COPY_RANGES_DONE, table).inc(ranges)

    def copy_finished(self, table: TableName, seconds: float) -> None:
        self._of(names.COPY_SECONDS_SPENT, table).observe(seconds)

    # -- streaming ----------------------------------------------------------------------------------------------

    def streamed(self, table: TableName, rows: Mapping[str, int], size: int) -> None:
        """A table's part of a batch was applied: changes by op, and the bytes of all of them."""
        for op, count in rows.items():
            self._of(names.STREAMED_ROWS, table, op).inc(count)
        self._of(names.STREAMED_BYTES, table).inc(size)

    def written(self, table: TableName, seconds: float) -> None:
        """The destination wrote a table's part of a batch."""
        self._of(names.WRITE_SECONDS, table).observe(seconds)

    def batch_applied(self, seconds: float, size: int) -> None:
        self._of(names.BATCHES).inc()
        self._of(names.BATCH_SECONDS).observe(seconds)
        self._of(names.BATCH_BYTES).observe(size)

    def lag(self, lag: Lag) -> None:
        self._set(names.RECEIVED_LAG, lag.received_bytes)
        self._set(names.FLUSHED_LAG, lag.flushed_bytes)
        self._set(names.APPLIED_LAG, lag.applied_bytes)
        self._set(names.END_TO_END_LAG, lag.end_to_end_bytes)
        self._set(names.LAG_SECONDS, lag.seconds)

    def progress(self, positions: Mapping[str, Lsn]) -> None:
        """Positions in the WAL by name: received, spooled, applied, confirmed."""
        for position, lsn in positions.items():
            self._of(names.PROGRESS, position).set(int(lsn))

    def slot_retained(self, size: int | None) -> None:
        self._set(names.SLOT_RETAINED, size)

    def spool_size(self, size: int) -> None:
        self._set(names.SPOOL_BYTES, size)

    def receiver_reconnected(self, times: int = 1) -> None:
        self._of(names.RECONNECTS).inc(times)

    def destination_running(self, running: bool) -> None:
        self._of(names.DESTINATION_RUNNING).set(int(running))

    # -- tables -------------------------------------------------------------------------------------------------

    def tables(self, count: Mapping[State, int]) -> None:
        """How many tables are in each state; none in those that are not named."""
        for state in State:
            self._of(names.TABLES, state.value).set(count.get(state, 0))

    def table_failed(self, table: TableName, kind: str) -> None:
        self._of(names.TABLE_ERRORS, table, kind).inc()

    def table_retried(self, table: TableName) -> None:
        self._of(names.TABLE_RETRIES, table).inc()

    def quarantined(self, table: TableName, values: int) -> None:
        self._of(names.QUARANTINED, table).inc(values)

    def forget_table(self, table: TableName) -> None:
        """The table left the pipeline: its series end."""
        for metric in ALL_METRICS:
            if "table" not in metric.labels:
                continue
            collector = self._collectors[metric.name]
            samples = [sample.labels for family in collector.collect() for sample in family.samples]
            ours = [labels for labels in samples if tuple(labels[name] for name in CONSTANT_LABELS) == self._constant]
            series = {tuple(labels[name] for name in metric.labels) for labels in ours}
            for values in series:
                if values[metric.labels.index("table")] == str(table):
                    collector.remove(*self._constant, *values)

    # -- memory -------------------------------------------------------------------------------------------------

    def memory_used(self, ratio: float) -> None:
        self._set(names.MEMORY_RATIO, ratio)

    def backpressure_changed(self, active: bool) -> None:
        self._of(names.BACKPRESSURE).set(int(active))
        self._of(names.BACKPRESSURE_TRANSITIONS, "activated" if active else "resumed").inc()

    # -- the endpoint -------------------------------------------------------------------------------------------

    def serve(self, host: str = "127.0.0.1", port: int = 9000) -> MetricsServer:
        """Answer Prometheus at http://host:port/metrics until the result is closed. Port 0 takes a free one."""
        try:
            server, thread = start_http_server(port, host, self.registry)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                msg = f"metrics cannot be served: port {port} of {host} is taken"
                raise ConfigError(msg, hint="set metrics.port to a free port, or to 0") from None
            msg = f"metrics cannot be served on port {port} of {host}"
            hint = "set metrics.host to an address of this machine and metrics.port to a port this user may open"
            raise ConfigError(msg, detail=error.strerror, hint=hint) from None
        _log.info("metrics are served", host=host, port=server.server_port)
        return MetricsServer(server, thread)


class MetricsServer:
    """A running endpoint; close it, or leave its `with` block."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread
        self.host = str(server.server_address[0])
        self.port = int(server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
