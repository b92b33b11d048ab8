"""Named points between receiving and confirming, where a test stops the pipeline: by an error, or by kill -9.

Nothing is registered outside of tests, and a point then costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["FAILPOINTS", "reach", "set_hook"]

FAILPOINTS = (
    "copy.before_drop",
    "copy.after_drop",
    "copy.after_data_sync",
    "copy.after_snapshot",
    "copy.before_write",
    "copy.after_write",
    "copy.after_range",
    "copy.before_finished",
    "copy.after_finished",
    "catchup.before_write",
    "catchup.after_write",
    "catchup.after_progress",
    "catchup.before_sync_done",
    "catchup.after_sync_done",
    "apply.before_write",
    "apply.after_write",
    "apply.after_progress",
    "apply.after_ready",
    "apply.after_confirm",
    "alter.after_applying",
    "alter.before_applied",
    "errored.before_progress",
    "errored.after_progress",
    "errored.after_state",
)

_hook: Callable[[str, str | None], None] | None = None


def set_hook(hook: Callable[[str, str | None], None] | None) -> None:
    """Have `hook(point, table)` called at every point; None removes it."""
    global _hook  # noqa: PLW0603
    _hook = hook


def reach(point: str, table: object = None) -> None:
    if _hook is not None:
        assert point in FAILPOINTS
        _hook(point, None if table is None else str(table))
