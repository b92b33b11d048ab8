"""Waiting for a running pipeline, and what its own clock says of its batches."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.pipeline import Pipeline, PipelineStatus
from headrace.table_state import State
from headrace.telemetry.metric_table import BATCH_SECONDS, WRITE_SECONDS

__all__ = ["batch_totals", "until", "until_ready", "write_totals"]


def until(
    pipeline: Pipeline,
    condition: Callable[[PipelineStatus], object],
    *,
    timeout_s: float = 600,
    poll_s: float = 0.005,
) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition(pipeline.status):
        assert not pipeline.wait(poll_s), "the pipeline ended"
        assert time.monotonic() < deadline, pipeline.status


def until_ready(pipeline: Pipeline, *, timeout_s: float = 600) -> None:
    """All tables are in step."""
    until(
        pipeline,
        lambda s: s.tables and all(t.state.state is State.READY for t in s.tables.values()),
        timeout_s=timeout_s,
    )


def batch_totals(pipeline: Pipeline) -> tuple[float, float]:
    """How many batches there were, and their seconds together."""
    return _totals(pipeline, BATCH_SECONDS.name)


def write_totals(pipeline: Pipeline) -> tuple[float, float]:
    """How many writes of one table's part of a batch there were, and their seconds together."""
    return _totals(pipeline, WRITE_SECONDS.name)


def _totals(pipeline: Pipeline, name: str) -> tuple[float, float]:
    assert pipeline.metrics is not None
    totals = {f"{name}_count": 0.0, f"{name}_sum": 0.0}
    for family in pipeline.metrics.registry.collect():
        for sample in family.samples:
            if sample.name in totals:
                totals[sample.name] += sample.value
    count, seconds = totals.values()
    return count, seconds
