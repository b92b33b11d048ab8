"""Gaps of a conformance suite: strict expected failures of the class that declares them, and of no other."""

from __future__ import annotations

import pytest

from headrace.testing.gaps import Gap, GapKind, declare, gap_of, needs

NAMED = Gap(GapKind.ENGINE_CANNOT, "columns keep their names")
NEEDED = Gap(GapKind.NOT_BUILT, "no modes")


class Suite:
    def test_one(self) -> None:
        """Needs nothing."""

    @needs("in_mode")
    def test_two(self) -> None:
        raise NotImplementedError

    @needs("in_mode", "reopened")
    @pytest.mark.long
    def test_three(self) -> None:
        raise NotImplementedError


def marks(suite: type, test: str) -> dict[str, object]:
    return {mark.name: mark.kwargs for mark in getattr(getattr(suite, test), "pytestmark", [])}


def test_a_gap_by_name_is_a_strict_xfail_of_this_suite_only() -> None:
    class Own(Suite):
        pass

    declare(Own, {"test_one": NAMED})
    assert marks(Own, "test_one") == {"xfail": {"reason": f"the engine cannot: {NAMED.reason}", "strict": True}}
    assert gap_of(Own, "test_one") == NAMED
    assert gap_of(Own, "test_two") is None
    assert marks(Suite, "test_one") == {}
    assert gap_of(Suite, "test_one") is None


def test_a_gap_by_what_is_needed_is_one_of_all_tests_that_need_it() -> None:
    class Own(Suite):
        pass

    declare(Own, {"in_mode": NEEDED, "test_three": NAMED})
    assert [gap_of(Own, test) for test in ("test_one", "test_two", "test_three")] == [None, NEEDED, NAMED]
    assert marks(Own, "test_three").keys() == {"long", "xfail"}
    assert marks(Suite, "test_three").keys() == {"long"}


@pytest.mark.parametrize("name", ["test_four", "in_modes"])
def test_a_gap_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"Suite has a gap {name}, but no such test"):
        declare(Suite, {name: NEEDED})


def test_the_marked_test_still_runs() -> None:
    class Own(Suite):
        pass

    declare(Own, {"in_mode": NEEDED})
    with pytest.raises(NotImplementedError):
        Own().test_two()
