"""`unchanged` of change rows, where columns leave or come: positions in another row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["NOT_THERE", "renumbered"]

NOT_THERE = -1
"""The position of a column that is not in the other row."""


def renumbered(unchanged: pa.ListArray, sources: Sequence[int], count: int) -> pa.ListArray:
    """Positions in a row of `count` columns as positions in one that takes its columns from `sources` of it.

    Those of columns that the other row does not have are left out.
    """
    if unchanged.null_count == len(unchanged):
        return unchanged
    places = np.full(count, NOT_THERE, dtype=np.int32)
    for place, source in enumerate(sources):
        if source != NOT_THERE:
            places[source] = place
    lengths: npt.NDArray[np.int64] = unchanged.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    values = places[unchanged.flatten().to_numpy()]
    owners = np.repeat(np.arange(len(unchanged)), lengths)[values != NOT_THERE]
    offsets = np.zeros(len(unchanged) + 1, dtype=np.int32)
    np.cumsum(np.bincount(owners, minlength=len(unchanged)), out=offsets[1:])
    kept = pa.array(values[values != NOT_THERE], pa.int32())
    empty = pa.array(np.diff(offsets) == 0)
    return pa.ListArray.from_arrays(pa.array(offsets), kept, type=unchanged.type, mask=empty)
