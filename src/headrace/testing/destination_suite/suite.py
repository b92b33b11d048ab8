"""All areas of the suite in one class."""

from __future__ import annotations

from .copies import CopySuite
from .crashes import CrashSuite
from .fencing import FencingSuite
from .hooks import DestinationHooks
from .keyless_tables import KeylessTableSuite
from .modes import ModeSuite
from .names import NameSuite
from .policies import PolicySuite
from .row_changes import RowChangeSuite
from .schema_changes import SchemaChangeSuite
from .size import SizeSuite
from .types import TypeSuite

__all__ = ["AREAS", "DestinationSuite"]

AREAS: dict[str, type] = {
    "Copies": CopySuite,
    "Changes of rows": RowChangeSuite,
    "Tables without key": KeylessTableSuite,
    "Types": TypeSuite,
    "Schema changes": SchemaChangeSuite,
    "Policies": PolicySuite,
    "Repeats, crashes and restarts": CrashSuite,
    "Fencing": FencingSuite,
    "Modes": ModeSuite,
    "Names": NameSuite,
    "Size": SizeSuite,
}
"""What the suite is made of, in the order in which it is told."""


class DestinationSuite(
    CopySuite,
    RowChangeSuite,
    KeylessTableSuite,
    TypeSuite,
    SchemaChangeSuite,
    PolicySuite,
    CrashSuite,
    FencingSuite,
    ModeSuite,
    NameSuite,
    SizeSuite,
    DestinationHooks,
):
    """Subclass it with a `destination` fixture and `read`; every test starts with an empty place."""
