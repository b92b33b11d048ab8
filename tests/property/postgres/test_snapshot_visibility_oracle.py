"""Snapshot.visible agrees with pg_visible_in_snapshot for any snapshot and any xid within 2^31 of it."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.postgres.snapshots import Snapshot

pytestmark = pytest.mark.matrix

EPOCH = 1 << 32


def normal(xid: int) -> int:
    """The next id that a transaction can have: 0, 1 and 2 of each epoch are never given out."""
    return max(xid, xid // EPOCH * EPOCH + 3)


@st.composite
def snapshots_and_xids(draw: st.DrawFn) -> tuple[Snapshot, list[int]]:
    near_wrap = st.integers(-50, 50).flatmap(lambda d: st.integers(1, 5).map(lambda epoch: epoch * EPOCH + d))
    xmin = normal(draw(st.one_of(st.integers(3, 1000), near_wrap, st.integers(3, 1 << 40))))
    xmax = normal(xmin + draw(st.integers(0, 100)))
    running = draw(st.sets(st.integers(0, 99), max_size=20))
    xip = sorted({xid for distance in running if (xid := normal(xmin + distance)) < xmax})
    offsets = st.one_of(st.integers(-120, 20), st.integers(-(1 << 31), (1 << 31) - 1))
    xids = [normal(max(3, xmax + offset)) for offset in draw(st.lists(offsets, min_size=1, max_size=50))]
    return Snapshot(xmin, xmax, tuple(xip)), xids


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=snapshots_and_xids())
def test_visible_like_the_server(
    connection: psycopg.Connection[tuple[object, ...]], case: tuple[Snapshot, list[int]]
) -> None:
    snapshot, xids = case
    rows = connection.execute(
        "SELECT pg_visible_in_snapshot(x::text::xid8, %s::pg_snapshot) "
        "FROM unnest(%s::int8[]) WITH ORDINALITY u(x, n) ORDER BY n",
        (str(snapshot), xids),
    ).fetchall()
    got = snapshot.visible(np.array([xid % EPOCH for xid in xids], dtype=np.uint32))
    assert got.tolist() == [seen for (seen,) in rows]
