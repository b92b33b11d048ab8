"""What a destination does not do, said where its tests are: the test fails on purpose, and the docs tell of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import Any, TypeVar

import pytest

__all__ = ["Gap", "GapKind", "declare", "gap_of", "needs"]

_Test = TypeVar("_Test", bound=Callable[..., None])


class GapKind(StrEnum):
    """Whether it will be done, or cannot be."""

    NOT_BUILT = "not built yet"
    ENGINE_CANNOT = "the engine cannot"


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a test of the suite does not pass."""

    kind: GapKind
    reason: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.reason}"


def needs(*words: str) -> Callable[[_Test], _Test]:
    """Mark a test of the suite that needs these hooks of it, or methods of the contract."""

    def marked(test: _Test) -> _Test:
        test.needs = words  # type: ignore[attr-defined]
        return test

    return marked


def declare(suite: type[Any], gaps: Mapping[str, Gap]) -> None:
    """Mark tests of a suite as expected to fail: one that passes all the same fails, for the gap is closed then.

    A gap is named by a test; or by what tests need, for all of them that have no gap by name.
    """
    for name, gap in gaps.items():
        tests = [name] if name.startswith("test_") else list(_tests_that_need(suite, name))
        if not tests or not callable(getattr(suite, tests[0], None)):
            msg = f"{suite.__name__} has a gap {name}, but no such test, and none that needs it"
            raise TypeError(msg)
        for test in tests:
            if test == name or test not in gaps:
                setattr(suite, test, pytest.mark.xfail(reason=str(gap), strict=True)(_own(getattr(suite, test), gap)))


def gap_of(suite: type[Any], test: str) -> Gap | None:
    """Why the suite's test does not pass; None: it does."""
    return getattr(getattr(suite, test), "gap", None)


def _tests_that_need(suite: type[Any], word: str) -> Iterator[str]:
    for name in dir(suite):
        if name.startswith("test_") and word in getattr(getattr(suite, name), "needs", ()):
            yield name


def _own(test: Any, gap: Gap) -> Any:
    """A copy, so that the mark stays with this suite."""

    @wraps(test)
    def copied(*args: Any, **given: Any) -> None:
        test(*args, **given)

    # A list of its own: the copy would share it with the test it was made of.
    copied.pytestmark = list(getattr(test, "pytestmark", []))  # type: ignore[attr-defined]
    copied.gap = gap  # type: ignore[attr-defined]
    return copied
