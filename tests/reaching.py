"""Something to do where a pipeline first reaches a failpoint."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.pipeline.failpoint import set_hook


@contextmanager
def once_at(point: str, act: Callable[[], object]) -> Iterator[Counter[str]]:
    """Within the block, `act` runs where the point is first reached; given is how often each point was reached."""
    reached: Counter[str] = Counter()
    lock = threading.Lock()

    def hook(here: str, _: str | None) -> None:
        with lock:
            reached[here] += 1
            first = here == point and reached[here] == 1
        if first:
            act()

    set_hook(hook)
    try:
        yield reached
    finally:
        set_hook(None)
