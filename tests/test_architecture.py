"""The budgets that keep the code readable: size of files and functions, a docstring and an __all__ in every module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import headrace

ROOT = Path(headrace.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
FILE_LINES, PACKAGE_LINES, BODY_LINES = 600, 60, 40
VAGUE = {"utils", "util", "common", "base", "helpers", "manager", "core", "misc"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def module_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def body_lines(function: Function) -> int:
    """Lines from the first statement to the last, without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body and body[-1].end_lineno else 0


def exported(tree: ast.Module) -> bool:
    targets = [t for node in tree.body if isinstance(node, ast.Assign) for t in node.targets]
    targets += [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def test_there_is_something_to_look_at() -> None:
    assert len(MODULES) > 20


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_a_module_is_within_its_budget(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    limit = PACKAGE_LINES if path.name == "__init__.py" else FILE_LINES
    assert len(text.splitlines()) <= limit
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, Function)]
    assert {f.name: n for f in functions if (n := body_lines(f)) > BODY_LINES} == {}


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_a_module_says_what_it_is_for_and_what_it_offers(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "no docstring"
    only_a_docstring = len(tree.body) == 1
    assert only_a_docstring or exported(tree), "no __all__"
    assert path.stem not in VAGUE
