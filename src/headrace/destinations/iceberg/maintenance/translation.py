"""Rows that were deleted while their files were written anew: which rows of the new files they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..deletion_vectors import Positions

__all__ = ["deleted_since", "moved_positions"]


def deleted_since(then: Positions, now: Positions) -> Positions | None:
    """Positions deleted now and not then. None if one is no longer deleted: the table was set back meanwhile."""
    if not np.isin(then, now).all():
        return None
    return np.setdiff1d(now, then)


def moved_positions(gone: Positions, files: Sequence[Positions]) -> list[Positions] | None:
    """Where rows lie in new files, of which each is given by the ids of its rows.

    None unless each id is there exactly once: what is not certain must not be committed.
    """
    found = [np.flatnonzero(np.isin(ids, gone)) for ids in files]
    if sum(len(positions) for positions in found) != len(np.unique(gone)):
        return None
    # As many as there are ids may still be one twice and another not at all.
    ids = np.concatenate([file[positions] for file, positions in zip(files, found, strict=True)] or [gone[:0]])
    return found if len(np.unique(ids)) == len(ids) else None
