"""`PostgresStore`: for pipelines that have no disk to rely on, or whose state should be seen and backed up by SQL."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import StoreFenced
from ..sql import SqlStore
from .database import Connect, PostgresDatabase
from .lease import Lease

__all__ = ["PostgresStore"]


class PostgresStore(SqlStore):
    """Store pipeline state in the schema `headrace` of a Postgres database, which several pipelines may share."""

    def __init__(self, connect: Connect | str, pipeline_id: int, *, migrate: bool = True) -> None:
        """Connect, and create or migrate the schema if need be; not `migrate`: only one that is there and up to date.

        `connect` opens a connection whenever one is needed, or is a connection string. Raises StoreIoError when the
        database cannot be reached or refuses, StoreVersionError when a later version of headrace wrote it.
        """
        database = PostgresDatabase(connect, migrate=migrate)
        super().__init__(database, pipeline_id)
        self._lease = Lease(database, pipeline_id)

    def take_lease(self, on_lost: Callable[[StoreFenced], None]) -> None:
        self._lease.take(on_lost)

    def renew_lease(self) -> None:
        self._lease.renew()

    def release_lease(self) -> None:
        self._lease.release()
