"""Opens the stores of a pipeline for those who only look or ask: none is made, or brought up to date, for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from ..config.lane import UNNAMED
from ..config.pipeline import PipelineConfig, StoreKind
from ..errors import ConfigError, HeadraceError, StoreIoError
from ..postgres.connection import connect
from ..postgres.translation import translated_errors
from ..stores import PipelineStore, PostgresStore, SqliteStore
from ..stores.lane_id import lane_id
from ..stores.sqlite import is_made

__all__ = ["known_stores", "lane_names", "required_stores"]

_IS_THERE = "SELECT pg_catalog.to_regclass('headrace.migration') IS NOT NULL"


@contextmanager
def known_stores(
    config: PipelineConfig, destination: str | None = None, *, migrate: bool = False
) -> Iterator[dict[str, PipelineStore | None]]:
    """The store of each destination, or of the one named; None before the pipeline's first start and for one in memory.

    `migrate` brings them up to date, which only who knows that the pipeline does not run may do. Raises StoreError, and
    ConfigError for a destination that there is not.
    """
    with ExitStack() as stack:
        stores: dict[str, PipelineStore | None] = {}
        there = _is_there(config)
        for name in lane_names(config, destination):
            stores[name] = stack.enter_context(closing(_opened(config, name, migrate))) if there else None
        yield stores


@contextmanager
def required_stores(config: PipelineConfig, destination: str | None = None) -> Iterator[dict[str, PipelineStore]]:
    """The same. Raises ConfigError where there is none to ask anything of."""
    if config.store.kind is StoreKind.MEMORY:
        msg = f"pipeline {config.id} keeps its states in memory, where no other process can reach them"
        raise ConfigError(msg, hint="set store.kind to sqlite or postgres; a restart copies all tables again anyway")
    with known_stores(config, destination) as stores:
        there = {name: store for name, store in stores.items() if store is not None}
        if len(there) < len(stores):
            msg = f"pipeline {config.id} has never run with this configuration: there is no store"
            place = f"looked for {config.store_path}" if config.store.kind is StoreKind.SQLITE else None
            hint = "run it first; if it runs in another directory, start this command there or set data_dir"
            raise ConfigError(msg, detail=place, hint=hint)
        yield there


def lane_names(config: PipelineConfig, destination: str | None) -> list[str]:
    """The destinations that are meant: all, or the one named. Raises ConfigError for one that there is not."""
    names = list(config.lanes) or [UNNAMED]
    if destination is None:
        return names
    if destination not in names or destination == UNNAMED:
        msg = f"pipeline {config.id} has no destination called {destination!r}"
        there = ", ".join(filter(None, names))
        hint = f"it has {there}" if there else "it has one, without a name: leave --destination out"
        raise ConfigError(msg, hint=hint)
    return [destination]


def _opened(config: PipelineConfig, name: str, migrate: bool) -> PipelineStore:
    """As `build.build_store` does, which comes with all of Spark; the pipeline that runs may be of an older version."""
    key = lane_id(config.id, name)
    if config.store.kind is StoreKind.SQLITE:
        return SqliteStore(config.store_path, key, migrate=migrate)
    database = config.store_pg_connection or config.pg_connection
    return PostgresStore(lambda: connect(database, "store", pipeline=config.id), key, migrate=migrate)


def _is_there(config: PipelineConfig) -> bool:
    if config.store.kind is StoreKind.MEMORY:
        return False
    if config.store.kind is StoreKind.SQLITE:
        return is_made(config.store_path)
    database = config.store_pg_connection or config.pg_connection
    try:
        with connect(database, "status", pipeline=config.id) as connection, translated_errors("cannot read the store"):
            row = connection.execute(_IS_THERE).fetchone()
    except HeadraceError as error:
        msg = "cannot connect to the store's database"
        raise StoreIoError(msg, detail=str(error), hint=error.hint) from error
    return row is not None and bool(row[0])
