"""The store in a file."""

from .database import is_made
from .store import SqliteStore

__all__ = ["SqliteStore", "is_made"]
