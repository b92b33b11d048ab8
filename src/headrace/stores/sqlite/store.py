"""`SqliteStore`: the default, a file next to the spool."""

from __future__ import annotations

from pathlib import Path

from ..sql import SqlStore
from .database import SqliteDatabase

__all__ = ["SqliteStore"]


class SqliteStore(SqlStore):
    """Implements `PipelineStore` in a SQLite file, which several pipelines and processes may share.

    The file must lie on a local disk: SQLite's locks do not work on network file systems.
    """

    def __init__(self, path: Path | str, pipeline_id: int, *, migrate: bool = True) -> None:
        """Open the file, creating or migrating it; not `migrate`: only one that is there and up to date.

        Raises StoreCorrupt for a file that is none of ours, StoreVersionError for one of a later version, StoreIoError
        when it cannot be opened or written.
        """
        super().__init__(SqliteDatabase(Path(path), migrate=migrate), pipeline_id)
