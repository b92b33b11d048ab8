"""What `headrace demo` says, and its exit codes; the demo itself is tested with a real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headrace.cli.demo
import headrace.demo.run
from headrace.cli.main import app
from headrace.demo.interrupts import Interrupted
from headrace.demo.lakehouses import LAKEHOUSES
from headrace.demo.proof import TableProof
from headrace.demo.run import DemoReport, DemoSettings
from headrace.errors import ConfigError

EQUAL = TableProof("shop.orders", 40_000, 40_000)
UNEQUAL = TableProof("shop.events", 10, 11, 1, 2, ("(id) = (7)", "(id) = (8)"))
OTHER_COLUMNS = TableProof("shop.products", 10, 10, columns="missing price")


class Ran:
    """A demo that ends as told."""

    def __init__(self, *proofs: TableProof, error: Exception | None = None) -> None:
        self.proofs, self.error = proofs, error
        self.settings: list[DemoSettings] = []

    def __call__(self, settings: DemoSettings, *_: object) -> DemoReport:
        self.settings.append(settings)
        if self.error is not None:
            raise self.error
        return DemoReport(Path("/place"), LAKEHOUSES["iceberg"], self.proofs, 75.0)


def run(monkeypatch: pytest.MonkeyPatch, ran: Ran, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(headrace.demo.run, "run_demo", ran)
    ended: list[float] = []
    # It would end the servers of the test run.
    monkeypatch.setattr(headrace.cli.demo, "end_children", ended.append)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert ended, "processes were left behind"
    return result.exit_code, result.output


def test_equal_tables_end_well_with_a_query_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run(monkeypatch, Ran(EQUAL, EQUAL))
    assert code == 0
    assert "The lakehouse equals the source: 80,000 rows" in output
    assert "/place/warehouse" in output
    assert 'load_table("shop.orders")' in output


def test_a_difference_is_shown_with_its_first_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run(monkeypatch, Ran(EQUAL, UNEQUAL, OTHER_COLUMNS))
    assert code == 1
    assert "equals the source" not in output
    assert "shop.events 1 rows only in the source, 2 only in the lakehouse; first: (id) = (7); (id) = (8)" in output
    assert "shop.products other columns: missing price" in output


def test_a_signal_ends_it_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run(monkeypatch, Ran(error=Interrupted()))
    assert code == 130
    assert output == "stopped, with all that was started\n"


def test_an_error_is_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run(monkeypatch, Ran(error=ConfigError("another demo runs in /place", hint="stop it first")))
    assert code == 2
    assert "another demo runs in /place" in output
    assert "stop it first" in output


def test_options_reach_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(EQUAL)
    run(monkeypatch, ran, "--dir", "/elsewhere", "--rows", "5000", "--seconds", "3", "--keep")
    run(monkeypatch, ran)
    assert ran.settings == [DemoSettings(Path("/elsewhere"), 5000, 3.0, True), DemoSettings()]
