"""Under which number a store keeps what belongs to one destination of a pipeline."""

from __future__ import annotations

import hashlib

from ..config.lane import DEFAULT, UNNAMED

__all__ = ["lane_id"]


def lane_id(pipeline_id: int, destination: str) -> int:
    """The pipeline's own id for its only destination, and for the one called `default` of several.

    So a pipeline with one destination becomes one of several, and back, without copying anything. For any other name,
    63 bits of a hash of both: the same in every process, and as good as never one that somebody chose.
    """
    if destination in (UNNAMED, DEFAULT):
        return pipeline_id
    digest = hashlib.sha256(f"{pipeline_id}/{destination}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
