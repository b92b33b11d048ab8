"""The store in a file."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
