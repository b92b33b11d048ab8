"""Maintenance of Iceberg tables, off the hot path: compaction, expiry of snapshots, removal of orphan files."""

from __future__ import annotations

from .upkeep import Maintenance

__all__ = ["Maintenance"]
