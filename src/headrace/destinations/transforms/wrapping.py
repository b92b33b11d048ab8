"""A destination with the transforms that settings name around it."""

from __future__ import annotations

from ...config.transforms import TransformsConfig
from ..contract import Destination
from .by_hook import HookTransforms
from .by_settings import SettingsTransforms
from .destination import Transformed

__all__ = ["transformed"]


def transformed(destination: Destination, config: TransformsConfig) -> Destination:
    """What is excluded, masked or filtered goes first: a Python function sees no more than a destination may."""
    if not config.tables:
        return destination
    if any(table.transform is not None for table in config.tables.values()):
        destination = Transformed(destination, HookTransforms(config))
    return Transformed(destination, SettingsTransforms(config))
