"""Damage to files: flipped bits and lost ends."""

from __future__ import annotations

import random
from collections.abc import Iterator

__all__ = ["damaged"]


def damaged(content: bytes, seed: int, flips: int, cuts: int) -> Iterator[tuple[str, bytes]]:
    """What a file may be after damage: so many times with one flipped bit, and so many times cut short."""
    chosen = random.Random(seed)
    for at in sorted(chosen.sample(range(len(content)), min(flips, len(content)))):
        changed = bytearray(content)
        changed[at] ^= 1 << chosen.randrange(8)
        yield f"a bit of byte {at} flipped", bytes(changed)
    for size in sorted({0, *(chosen.randrange(len(content)) for _ in range(cuts))}):
        yield f"cut to {size} bytes", content[:size]
