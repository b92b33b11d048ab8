"""What the demo looks at before it starts anything."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from headrace.config.pipeline import PipelineConfig
from headrace.demo.interrupts import Interrupts
from headrace.demo.run import DemoSettings, Frame, run_demo
from headrace.errors import SparkUnavailable


class Dark:
    """A screen on which nothing may appear."""

    def done(self, what: str, seconds: float) -> None:
        pytest.fail(what)

    def doing(self, what: str) -> AbstractContextManager[object]:
        pytest.fail(what)

    def live(self, config: PipelineConfig) -> AbstractContextManager[Frame]:
        pytest.fail(str(config.id))


def test_without_java_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="there is no bin/java in it") as caught:
        run_demo(DemoSettings(tmp_path / "demo"), Dark(), Interrupts())
    assert "install Java 17 or 21" in caught.value.hint
    assert not (tmp_path / "demo" / "postgres").exists()
