"""The verdict on a soak: robust trends of what was sampled, and the limits that they must keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["FULL_MINUTES", "Series", "Trend", "Verdict", "judge", "theil_sen", "warm_up_s"]

FULL_MINUTES = 60.0
"""From this duration on the warm-up is 20 minutes; of a shorter run it is a third."""
MEMORY_LIMIT = 0.05
"""Growth of memory per hour, as a share of its median."""
COUNT_LIMIT = 0.02
"""Rise of a count from the end of the warm-up to the end of the run, as a share of its median; one at least."""
MIN_SAMPLES = 8

Series = Sequence[tuple[float, float]]
"""Seconds since the start, and the value measured."""


def warm_up_s(minutes: float) -> float:
    return 60 * min(20.0, minutes / 3)


def theil_sen(series: Series) -> tuple[float, float]:
    """Return the median of the slopes between all pairs of points, per second, and the line's value at time 0.

    Unlike least squares it ignores peaks, as long as they are fewer than three in ten samples.
    """
    times, values = np.array(series, dtype=float).T
    first, second = np.triu_indices(len(times), 1)
    apart = times[second] - times[first]
    slope = float(np.median((values[second] - values[first])[apart > 0] / apart[apart > 0]))
    return slope, float(np.median(values - slope * times))


@dataclass(frozen=True, slots=True)
class Trend:
    """How one quantity developed after the warm-up."""

    name: str
    samples: int
    first: float
    last: float
    median: float
    peak: float
    per_hour: float
    """The slope, in the quantity's own unit."""
    share_per_hour: float
    limit: str
    """What was required, for people; empty if the trend is only reported."""
    kept: bool

    def __str__(self) -> str:
        state = ("  " if self.kept else "! ") if self.limit else "  "
        line = f"{state}{self.name:28} median {self.median:9.1f}  peak {self.peak:9.1f}  "
        return f"{line}{self.per_hour:+9.2f}/h ({self.share_per_hour:+7.2%}/h)  {self.limit}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """All trends of a run."""

    minutes: float
    warm_up_minutes: float
    trends: tuple[Trend, ...]

    @property
    def broken(self) -> list[Trend]:
        return [trend for trend in self.trends if not trend.kept]

    def __str__(self) -> str:
        length = "" if self.minutes >= FULL_MINUTES else "; SHORT RUN: slopes of less than an hour are only indicative"
        title = f"{self.minutes:g} minutes, of which {self.warm_up_minutes:.1f} are warm-up and not judged{length}"
        return "\n".join([title, *map(str, self.trends)])

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": not self.broken}


def judge(
    minutes: float, memory: Mapping[str, Series], counts: Mapping[str, Series], reported: Mapping[str, Series]
) -> Verdict:
    """Judge what came after the warm-up: `memory` and `counts` by their limits; of `reported` nothing is required."""
    warm_up = warm_up_s(minutes)
    trends = [_memory_trend(name, series) for name, series in _judged(memory, warm_up)]
    trends += [_count_trend(name, series) for name, series in _judged(counts, warm_up)]
    trends += [_trend(name, series, "", kept=True) for name, series in _judged(reported, warm_up)]
    return Verdict(minutes, warm_up / 60, tuple(trends))


def _judged(named: Mapping[str, Series], warm_up: float) -> Iterable[tuple[str, Series]]:
    for name, series in named.items():
        after = [point for point in series if point[0] >= warm_up]
        assert len(after) >= MIN_SAMPLES, f"{name}: {len(after)} samples after the warm-up, {MIN_SAMPLES} are needed"
        yield name, after


def _memory_trend(name: str, series: Series) -> Trend:
    slope, _ = theil_sen(series)
    kept = slope * 3600 < MEMORY_LIMIT * _median(series)
    return _trend(name, series, f"grows by less than {MEMORY_LIMIT:.0%} per hour", kept=kept)


def _count_trend(name: str, series: Series) -> Trend:
    slope, _ = theil_sen(series)
    allowed = max(1.0, COUNT_LIMIT * _median(series))
    rise = slope * (series[-1][0] - series[0][0])
    return _trend(name, series, f"is flat: rises by less than {allowed:.1f} in the run", kept=rise < allowed)


def _trend(name: str, series: Series, limit: str, *, kept: bool) -> Trend:
    slope, _ = theil_sen(series)
    values = [value for _, value in series]
    median = _median(series)
    share = slope * 3600 / median if median else 0.0
    return Trend(name, len(series), values[0], values[-1], median, max(values), slope * 3600, share, limit, kept)


def _median(series: Series) -> float:
    return float(np.median([value for _, value in series]))
