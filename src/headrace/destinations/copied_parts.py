"""How a destination writes down which parts of a copy it has."""

from __future__ import annotations

__all__ = ["read_parts", "write_parts"]


def write_parts(parts: frozenset[int]) -> str:
    """As ranges, `0-4,7`: a copy may have thousands of parts, finished nearly in order."""
    runs: list[list[int]] = []
    for part in sorted(parts):
        if runs and runs[-1][1] == part - 1:
            runs[-1][1] = part
        else:
            runs.append([part, part])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def read_parts(text: str) -> frozenset[int]:
    parts: set[int] = set()
    for run in filter(None, text.split(",")):
        first, _, last = run.partition("-")
        parts.update(range(int(first), int(last or first) + 1))
    return frozenset(parts)
