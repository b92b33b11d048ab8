"""Whether somebody can be asked."""

from __future__ import annotations

import sys

__all__ = ["on_terminal"]


def on_terminal() -> bool:
    """Whether standard input is a terminal: only then is a question answered by a person."""
    return sys.stdin.isatty()
