"""Which tables a lake holds, and what is decided of those that join later."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from headrace.config.delta import DeltaConfig
from headrace.config.iceberg import IcebergConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.delta.plan import make_plans as delta_plans
from headrace.destinations.iceberg.plan import make_plans as iceberg_plans
from headrace.destinations.lake.held_tables import HeldTables
from headrace.errors import ConfigError
from headrace.schema import ReplicatedTableSchema
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table

A, B, C, D = (example_table(number, name, {"id": "int8"}, ("id",)) for number, name in enumerate("abcd", 1))
NAMED = {"public.b": {"name": "lake.bees"}}


def _held(settings: Any, make_plans: Any, *tables: ReplicatedTableSchema) -> HeldTables:
    return HeldTables(settings, DestinationContext(1, MemoryStore(), None, tables), partial(make_plans, settings))


@pytest.mark.parametrize(
    ("model", "make_plans"), [(IcebergConfig, iceberg_plans), (DeltaConfig, delta_plans)], ids=["iceberg", "delta"]
)
def test_settings_of_a_table_that_left_keep_nobody_out(model: Any, make_plans: Any) -> None:
    settings = model.model_validate({"warehouse": "lake", "tables": NAMED})
    held = _held(settings, make_plans, A, B)
    assert held.of(B).name == ("lake", "bees")
    held.forget(B)
    assert held.of(C).name == ("public", "c")
    # Should it come again, they are its own again; and those who join meanwhile are looked at as ever.
    assert held.of(B).name == ("lake", "bees")
    settings = settings.model_copy(update={"table_name": "all"})
    with pytest.raises(ConfigError, match=r"public.a and public.d have the same name"):
        _held(settings, make_plans, A, B).of(D)


def test_at_the_start_settings_of_no_table_are_told() -> None:
    settings = IcebergConfig.model_validate({"warehouse": "lake", "tables": NAMED})
    with pytest.raises(ConfigError, match=r"destination.tables names public.b, which is not in the publication"):
        _held(settings, iceberg_plans, A, C)
