"""`PostgresStore`: for pipelines that have no disk to rely on, or whose state should be seen and backed up by SQL."""

from __future__ import annotations

from ..sql import SqlStore
from .database import Connect, PostgresDatabase

__all__ = ["PostgresStore"]


class PostgresStore(SqlStore):
    """Implements `PipelineStore` in the schema `headrace` of a Postgres database, which several pipelines may share."""

    def __init__(self, connect: Connect | str, pipeline_id: int, *, migrate: bool = True) -> None:
        """Connect, and create or migrate the schema if need be; not `migrate`: only one that is there and up to date.

        `connect` opens a connection whenever one is needed, or is a connection string. Raises StoreIoError when the
        database cannot be reached or refuses, StoreVersionError when a later version of headrace wrote it.
        """
        super().__init__(PostgresDatabase(connect, migrate=migrate), pipeline_id)
