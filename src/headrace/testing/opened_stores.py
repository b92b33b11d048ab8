"""What every suite of stores runs on: stores, opened as a test asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from ..stores.contract import PipelineStore

__all__ = ["OpenStore", "OpenedStores"]

OpenStore = Callable[[int], PipelineStore]


class OpenedStores:
    """Made of the `open_store` fixture, which a subclass has."""

    @pytest.fixture
    def opened(self, open_store: OpenStore) -> Iterator[OpenStore]:
        """`open_store`, with what it opened closed at the end."""
        with ExitStack() as stack:
            yield lambda pipeline_id: stack.enter_context(closing(open_store(pipeline_id)))

    @pytest.fixture
    def store(self, opened: OpenStore) -> PipelineStore:
        return opened(1)
