"""What a destination may need of Spark beyond the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

__all__ = ["NeedsSpark"]


@runtime_checkable
class NeedsSpark(Protocol):
    """A destination for which Spark must be started in a certain way."""

    packages: tuple[str, ...]
    """Maven coordinates of jars."""
    spark_conf: Mapping[str, str]
    """Settings. Of `spark.sql.extensions`, those of all destinations and of the user are loaded."""
