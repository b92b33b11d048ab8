"""The soak's verdict: what is a trend and what is not, by series of which the answer is known."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from soak_judging import Series, judge, theil_sen, warm_up_s
from soak_sampling import Samples, process_sample, tree_sample

HOUR = 3600


def line(start: float, per_hour: float, *, noise: float = 0.0, seconds: int = HOUR) -> Series:
    chance = random.Random(7)
    return [(at, start + per_hour * at / HOUR + chance.uniform(-noise, noise)) for at in range(0, seconds, 5)]


def test_the_slope_of_a_line_is_found_exactly() -> None:
    slope, start = theil_sen(line(300, 36))
    assert slope * HOUR == pytest.approx(36)
    assert start == pytest.approx(300)


def test_peaks_do_not_make_a_slope() -> None:
    peaks = [(at, value + (500 if at >= HOUR * 0.8 else 0)) for at, value in line(300, 0, noise=1)]
    slope, _ = theil_sen(peaks)
    assert abs(slope * HOUR) < 3
    assert not judge(60, {"driver": peaks}, {}, {}).broken


def test_two_samples_at_one_moment_have_no_slope_between_them() -> None:
    assert theil_sen([(0, 1), (0, 5), (10, 1), (10, 5)])[0] == 0


@pytest.mark.parametrize(("percent", "kept"), [(-20, True), (0, True), (4, True), (6, False), (55, False)])
def test_memory_may_grow_by_less_than_five_percent_an_hour(percent: float, kept: bool) -> None:
    verdict = judge(60, {"driver RSS MB": line(300, 3 * percent, noise=8)}, {}, {})
    assert [trend.kept for trend in verdict.trends] == [kept]


def test_growth_in_the_warm_up_is_not_judged() -> None:
    grown = [(at, min(200 + at / 2, 700)) for at, _ in line(0, 0)]
    assert warm_up_s(60) == 1200
    assert not judge(60, {"driver RSS MB": grown}, {}, {}).broken
    longer = [(at, 200 + at / 2) for at, _ in grown]
    assert judge(60, {"driver RSS MB": longer}, {}, {}).broken


@pytest.mark.parametrize(("per_hour", "kept"), [(0, True), (1, True), (6, False), (400, False)])
def test_counts_are_flat(per_hour: float, kept: bool) -> None:
    counted = [(at, float(int(value))) for at, value in line(40.5, per_hour)]
    verdict = judge(60, {}, {"receiver descriptors": counted}, {})
    assert [trend.kept for trend in verdict.trends] == [kept]


def test_what_is_only_reported_fails_nothing() -> None:
    verdict = judge(60, {}, {}, {"storage files": line(10, 5000)})
    assert not verdict.broken
    assert re.search(r"storage files .* \+5000\.00/h", str(verdict))


def test_a_short_run_says_so() -> None:
    short = judge(3, {"driver RSS MB": line(300, 0, seconds=180)}, {}, {})
    assert short.warm_up_minutes == 1
    assert "SHORT RUN" in str(short)
    assert "SHORT RUN" not in str(judge(60, {"driver RSS MB": line(300, 0)}, {}, {}))


def test_too_few_samples_are_no_verdict() -> None:
    with pytest.raises(AssertionError, match="driver RSS MB: 4 samples after the warm-up"):
        judge(60, {"driver RSS MB": [(at, 1.0) for at in range(0, HOUR, 600)]}, {}, {})


def test_a_process_is_sampled_with_its_children(tmp_path: Path) -> None:
    code = "import subprocess, sys; print(1, flush=True); subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = tree_sample(process.pid)
        one = process_sample(process.pid)
        process.communicate(b"\n")
    assert found["driver"]["processes"] == 1
    assert one["rss_mb"] > one["anon_mb"] > 1
    assert one["descriptors"] >= 3
    assert one["threads"] == 1
    samples = Samples(tmp_path / "samples")
    samples.add(processes=found)
    samples.add(heap_mb=5)
    assert [value for _, value in samples.series("processes", "driver", "threads")] == [1]
    assert [value for _, value in samples.series("heap_mb")] == [5]
    assert len((tmp_path / "samples").read_text().splitlines()) == 2
