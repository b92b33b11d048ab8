"""Numbers as a person reads them."""

from __future__ import annotations

__all__ = ["counted", "duration", "rate", "size"]

_KILO = 1000.0
_KIBI = 1024.0
_TEN = 10.0


def counted(number: float) -> str:
    """1,234 in full; from a hundred thousand on shortened: 1.2 M."""
    if number < 100 * _KILO:
        return f"{number:,.0f}"
    for unit in ("k", "M", "G"):
        number /= _KILO
        # 999.95 would be printed as 1000.0.
        if number < _KILO - 0.05:
            return f"{number:.1f} {unit}"
    return f"{number / _KILO:.1f} T"


def rate(number: float) -> str:
    """Per second; a slow one with a decimal, so that it does not look like none."""
    if not number:
        return "-"
    return f"{number:.1f}/s" if number < _TEN else f"{counted(number)}/s"


def size(number: int | None) -> str:
    """Bytes, in powers of 1024."""
    if number is None:
        return "-"
    if number < _KIBI:
        return f"{number} B"
    left = float(number)
    for unit in ("kB", "MB", "GB"):
        left /= _KIBI
        if left < _KIBI - 0.05:
            return f"{left:.1f} {unit}"
    return f"{left / _KIBI:.1f} TB"


def duration(seconds: float | None) -> str:
    """Seconds with a decimal below ten, else as h:mm:ss or m:ss."""
    if seconds is None:
        return "-"
    if seconds < _TEN:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
