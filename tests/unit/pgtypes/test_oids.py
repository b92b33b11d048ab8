"""The table of built-in types."""

from __future__ import annotations

import pytest

from headrace.pgtypes.oids import builtin_type
from headrace.schema import PgType


@pytest.mark.parametrize(
    ("oid", "name"), [(16, "bool"), (23, "int4"), (1700, "numeric"), (3802, "jsonb"), (18, "char")]
)
def test_base_types(oid: int, name: str) -> None:
    assert builtin_type(oid) == PgType(oid, name)


def test_an_array_has_its_element() -> None:
    assert builtin_type(1007) == PgType(1007, "_int4", element=PgType(23, "int4"))


def test_a_box_has_a_delimiter_of_its_own() -> None:
    array = builtin_type(1020)
    assert array is not None
    assert array.element is not None
    assert array.element.delimiter == ";"


@pytest.mark.parametrize("oid", [19, 22, 30, 600])
def test_types_with_a_subscript_are_no_arrays(oid: int) -> None:
    builtin = builtin_type(oid)
    assert builtin is not None
    assert builtin.element is None


def test_other_oids_are_not_built_in() -> None:
    assert builtin_type(0) is None
    assert builtin_type(16_384) is None
