"""The store in a Postgres database: the source or another one."""

from .store import PostgresStore

__all__ = ["PostgresStore"]
