"""Small facts that tasks report to the driver while their rows go elsewhere: counts, rejected values, file names."""

from __future__ import annotations

import itertools
import threading
from typing import Any
from weakref import WeakKeyDictionary

from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.sql import SparkSession

__all__ = ["TaskReports"]

_Facts = dict[tuple[int, int], Any]


class _LastPerWork(AccumulatorParam[_Facts]):
    """One fact per work: a work that ran again replaces what it said before, so nothing counts twice."""

    def zero(self, value: _Facts) -> _Facts:
        return {}

    def addInPlace(self, value1: _Facts, value2: _Facts) -> _Facts:
        value1.update(value2)
        return value1


# One accumulator per context, for all reports: pyspark never forgets an accumulator, and a pipeline makes many reports.
_accumulators: WeakKeyDictionary[SparkContext, Accumulator[_Facts]] = WeakKeyDictionary()
_lock = threading.Lock()
_numbers = itertools.count()


class TaskReports:
    """Made in the driver and used in tasks, where it is pickled into.

    What a task put counts when the task succeeded, and is there when the action that ran it returns. An action that
    runs the same works again replaces their facts.
    """

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        with _lock:
            if context not in _accumulators:
                _accumulators[context] = context.accumulator({}, _LastPerWork())
            self._accumulator = _accumulators[context]
            self._number = next(_numbers)

    def put(self, index: int, value: Any) -> None:
        """In a task: report a picklable value for the work of that index. Small: it is kept in the driver's memory."""
        self._accumulator.add({(self._number, index): value})

    def values(self) -> dict[int, Any]:
        """In the driver: what the tasks reported so far, by the index of their work."""
        facts = list(self._accumulator.value.items())
        return {index: value for (number, index), value in facts if number == self._number}

    def close(self) -> None:
        """In the driver: forget the facts. Call it when they were read; a long-running pipeline would keep them all."""
        facts = self._accumulator.value
        for key in [key for key in list(facts) if key[0] == self._number]:
            facts.pop(key, None)

    def __enter__(self) -> TaskReports:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
