"""destinations.existing_rows: what rows older than a column show in it, however many there are."""

from __future__ import annotations

import pytest

from headrace.destinations.existing_rows import existing_value, existing_values
from headrace.testing.example_tables import example_column

CASES = [("int4", "7", 7), ("text", "", ""), ("_text", "{a,NULL}", ["a", None]), ("_int4", None, None)]


@pytest.mark.parametrize(("type_name", "text", "value"), CASES)
@pytest.mark.parametrize("size", [0, 1, 3])
def test_the_missing_value_of_a_column(type_name: str, text: str | None, value: object, size: int) -> None:
    column = example_column("c", 9, type_name, missing=text)
    assert existing_value(column).as_py() == value
    values = existing_values(column, size)
    assert values.type == existing_value(column).type
    assert values.to_pylist() == [value] * size
