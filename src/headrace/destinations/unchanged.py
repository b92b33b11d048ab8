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

    Those of columns that the other row does not have are left out; one that it takes twice stands there twice.
    """
    if unchanged.null_count == len(unchanged):
        return unchanged
    lengths: npt.NDArray[np.int64] = unchanged.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    owners = np.repeat(np.arange(len(unchanged)), lengths)
    which, values = _places(unchanged.flatten().to_numpy(), np.array(sources, dtype=np.int64), count)
    offsets = np.zeros(len(unchanged) + 1, dtype=np.int32)
    np.cumsum(np.bincount(owners[which], minlength=len(unchanged)), out=offsets[1:])
    empty = pa.array(np.diff(offsets) == 0)
    kept = pa.array(values.astype(np.int32), pa.int32())
    return pa.ListArray.from_arrays(pa.array(offsets), kept, type=unchanged.type, mask=empty)


def _places(
    positions: npt.NDArray[np.int32], sources: npt.NDArray[np.int64], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each position, its places in the other row: indexes into `positions`, and the place for each of them."""
    taken = np.flatnonzero(sources != NOT_THERE)
    by_source = taken[np.argsort(sources[taken], kind="stable")]
    takers = np.bincount(sources[taken], minlength=count)
    first = np.cumsum(takers) - takers
    sizes = takers[positions]
    which = np.repeat(np.arange(len(positions)), sizes)
    nth = np.arange(len(which)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return which, by_source[first[positions][which] + nth]
