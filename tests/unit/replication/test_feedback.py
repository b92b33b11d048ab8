from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.lsn import Lsn
from headrace.replication.feedback import Positions, confirmable


def at(spooled: int, covered: int, applied: int) -> Positions:
    return Positions(Lsn(spooled), Lsn(covered), Lsn(applied))


def test_a_durable_spool_is_enough() -> None:
    assert confirmable(at(spooled=50, covered=50, applied=10), durable_spool=True) == 50


def test_without_one_only_what_every_table_applied_counts() -> None:
    assert confirmable(at(spooled=50, covered=50, applied=10), durable_spool=False) == 10


def test_an_idle_slot_follows_the_server() -> None:
    assert confirmable(at(spooled=50, covered=900, applied=10), durable_spool=True) == 900
    assert confirmable(at(spooled=50, covered=900, applied=50), durable_spool=False) == 900


def test_idleness_does_not_hide_what_a_table_still_owes() -> None:
    assert confirmable(at(spooled=50, covered=900, applied=49), durable_spool=False) == 49


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), st.booleans())
def test_nothing_is_confirmed_that_is_not_safe(spooled: int, idle: int, applied: int, durable: bool) -> None:
    positions = at(spooled, spooled + idle, applied)
    confirmed = confirmable(positions, durable_spool=durable)
    assert confirmed <= positions.covered or confirmed <= positions.applied
    if not durable and applied < spooled:
        assert confirmed <= applied
