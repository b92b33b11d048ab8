"""Where a pipeline writes to: destinations by name, each with a store of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from ..config.lane import NAME_PATTERN, UNNAMED
from ..destinations.contract import Destination
from ..errors import ConfigError
from ..stores.contract import PipelineStore

__all__ = ["GivenDestinations", "GivenStores", "Outlet", "outlets_of"]

GivenStores = PipelineStore | Mapping[str, PipelineStore] | Callable[[str], PipelineStore]
GivenDestinations = Destination | Mapping[str, Destination]


@dataclass(frozen=True, slots=True)
class Outlet:
    """A destination and the store that has its states and progress. `name` is empty if it is the only one."""

    name: str
    store: PipelineStore
    destination: Destination


def outlets_of(store: GivenStores, destination: GivenDestinations) -> tuple[Outlet, ...]:
    """Destinations with their stores, in the order given. Raises ConfigError where they do not fit."""
    if not isinstance(destination, Mapping):
        if not _is_store(store):
            msg = "one destination without a name takes one store"
            raise ConfigError(msg, hint="give the store itself; or the destination by name, as a mapping")
        return (Outlet(UNNAMED, cast("PipelineStore", store), destination),)
    _check_names(destination)
    stores = _stores(store, destination)
    if len({id(one) for one in stores.values()}) < len(stores):
        raise ConfigError("two destinations have the same store", hint="give each a store of its own")
    return tuple(Outlet(name, stores[name], one) for name, one in destination.items())


def _check_names(destinations: Mapping[str, Destination]) -> None:
    if not destinations:
        raise ConfigError("no destination is given", hint="give one, or a mapping of names to destinations")
    if [*destinations] == [UNNAMED]:
        return
    for name in destinations:
        if not re.fullmatch(NAME_PATTERN, name):
            msg = f"a destination cannot be called {name!r}"
            raise ConfigError(msg, hint="a name is a letter and up to 30 more of a-z, 0-9 and _")


def _stores(given: GivenStores, destinations: Mapping[str, Destination]) -> dict[str, PipelineStore]:
    if _is_store(given):
        msg = "destinations with names need a store each"
        raise ConfigError(msg, hint="give stores by the same names, as a mapping or as a function of the name")
    if not isinstance(given, Mapping):
        make = cast("Callable[[str], PipelineStore]", given)
        return {name: make(name) for name in destinations}
    missing = [name for name in destinations if name not in given]
    if missing:
        msg = f"the destination {missing[0]} has no store"
        raise ConfigError(msg, hint="give a store for each destination, by the same name")
    return {name: given[name] for name in destinations}


def _is_store(given: GivenStores) -> bool:
    return not isinstance(given, Mapping) and hasattr(given, "get_table_states")
