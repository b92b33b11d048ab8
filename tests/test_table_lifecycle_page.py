"""docs/concepts/table-lifecycle.md shows the transitions that the code has, and tells of every state."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from headrace.table_state import TRANSITIONS, State

TOOL = Path(__file__).parents[1] / "tools" / "table_state_diagram.py"


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("table_state_diagram", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(tool: ModuleType) -> None:
    page = tool.PAGE.read_text(encoding="utf-8")
    assert page == tool.updated(page), "run: .venv/bin/python tools/table_state_diagram.py"


def test_the_diagram_has_every_transition_and_the_page_every_state(tool: ModuleType) -> None:
    assert tool.diagram().count("-->") == 1 + sum(map(len, TRANSITIONS.values()))
    page = tool.PAGE.read_text(encoding="utf-8")
    names = ["".join(part.title() for part in state.value.split("_")) for state in State]
    assert [name for name in names if f"| {name} |" not in page] == []
