"""Opens the store of a pipeline for those who only look or ask: one that is not there is not made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from ..config.pipeline import PipelineConfig, StoreKind
from ..errors import ConfigError, HeadraceError, StoreIoError
from ..postgres.connection import connect
from ..postgres.translation import translated_errors
from ..stores import PipelineStore, PostgresStore, SqliteStore

__all__ = ["known_store", "required_store"]

_IS_THERE = "SELECT to_regclass('headrace.migration') IS NOT NULL"


@contextmanager
def known_store(config: PipelineConfig) -> Iterator[PipelineStore | None]:
    """The store, or None before the pipeline's first start and for one in memory. Raises StoreError."""
    store = _open(config)
    if store is None:
        yield None
        return
    with closing(store):
        yield store


@contextmanager
def required_store(config: PipelineConfig) -> Iterator[PipelineStore]:
    """The store. Raises ConfigError where there is none to ask anything of."""
    if config.store.kind is StoreKind.MEMORY:
        msg = f"pipeline {config.id} keeps its states in memory, where no other process can reach them"
        raise ConfigError(msg, hint="set store.kind to sqlite or postgres; a restart copies all tables again anyway")
    with known_store(config) as store:
        if store is None:
            msg = f"pipeline {config.id} has never run with this configuration: there is no store"
            place = f"looked for {config.store_path}" if config.store.kind is StoreKind.SQLITE else None
            hint = "run it first; if it runs in another directory, start this command there or set data_dir"
            raise ConfigError(msg, detail=place, hint=hint)
        yield store


def _open(config: PipelineConfig) -> PipelineStore | None:
    if config.store.kind is StoreKind.MEMORY:
        return None
    if config.store.kind is StoreKind.SQLITE:
        return SqliteStore(config.store_path, config.id) if config.store_path.is_file() else None
    database = config.store_pg_connection or config.pg_connection
    try:
        with connect(database, "status", pipeline=config.id) as connection, translated_errors("cannot read the store"):
            row = connection.execute(_IS_THERE).fetchone()
    except HeadraceError as error:
        msg = "cannot connect to the store's database"
        raise StoreIoError(msg, detail=str(error), hint=error.hint) from error
    if row is None or not row[0]:
        return None
    return PostgresStore(lambda: connect(database, "store", pipeline=config.id), config.id)
