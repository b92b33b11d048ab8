"""What the lanes of a life have in common. Put together by `build`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..config.pipeline import PipelineConfig
from ..telemetry.metrics import Metrics
from .memory import MemoryMonitor
from .shared_reception import SharedReception

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Shared"]


@dataclass(frozen=True, slots=True)
class Shared:
    """One slot, one spool, one receiver, one Spark."""

    config: PipelineConfig
    spark: SparkSession | Any
    reception: SharedReception
    memory: MemoryMonitor
    metrics: Metrics
    lanes: int
    run_id: str
    """A random word for this life."""
