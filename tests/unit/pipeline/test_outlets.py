"""Destinations and stores as a program gives them: one of each, or by name."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.destinations import MemoryDestination
from headrace.errors import ConfigError
from headrace.pipeline.outlets import outlets_of
from headrace.stores import MemoryStore
from headrace.stores.lane_id import lane_id


def test_one_of_each() -> None:
    store, destination = MemoryStore(), MemoryDestination()
    (it,) = outlets_of(store, destination)
    assert (it.name, it.store, it.destination) == ("", store, destination)
    (it,) = outlets_of({"": store}, {"": destination})
    assert (it.name, it.store, it.destination) == ("", store, destination)


def test_by_name_with_stores_by_name_or_made() -> None:
    destinations = {"lake": MemoryDestination(), "duck_2": MemoryDestination()}
    stores = {name: MemoryStore() for name in destinations}
    expected = [(name, stores[name], destinations[name]) for name in ("lake", "duck_2")]
    for given in (stores, stores.__getitem__):
        assert [(it.name, it.store, it.destination) for it in outlets_of(given, destinations)] == expected


@pytest.mark.parametrize(
    ("stores", "destinations", "message"),
    [
        (MemoryStore(), {"a": MemoryDestination()}, "need a store each"),
        ({"a": MemoryStore()}, MemoryDestination(), "takes one store"),
        (lambda _: MemoryStore(), MemoryDestination(), "takes one store"),
        ({"a": MemoryStore()}, {"a": MemoryDestination(), "b": MemoryDestination()}, "b has no store"),
        ({}, {}, "no destination"),
        ({"A": MemoryStore()}, {"A": MemoryDestination()}, "cannot be called 'A'"),
        ({"": MemoryStore(), "a": MemoryStore()}, {"": MemoryDestination(), "a": MemoryDestination()}, "called ''"),
    ],
)
def test_what_does_not_fit(stores: Any, destinations: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        outlets_of(stores, destinations)
    assert caught.value.hint


def test_a_store_cannot_be_shared() -> None:
    store = MemoryStore()
    with pytest.raises(ConfigError, match="same store"):
        outlets_of(lambda _: store, {"a": MemoryDestination(), "b": MemoryDestination()})


def test_under_which_number_a_store_keeps_a_destination() -> None:
    assert lane_id(7, "") == lane_id(7, "default") == 7
    named = lane_id(7, "lake")
    # Written down in stores: it must never change.
    assert named == 4919230707446712320
    assert len({named, lane_id(7, "duck"), lane_id(8, "lake"), 7}) == 4
    assert 0 <= named < 1 << 63
