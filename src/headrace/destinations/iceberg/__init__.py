"""Apache Iceberg tables: files written by tasks, committed by the driver."""

from __future__ import annotations

from .destination import IcebergDestination

__all__ = ["IcebergDestination"]
