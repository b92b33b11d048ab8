"""What `headrace new-destination` writes: a package with a destination that works, and its tests."""

from .writing import NewPackage, write_package

__all__ = ["NewPackage", "write_package"]
