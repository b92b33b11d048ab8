"""What Delta's log says of a file's values is never narrower than they are."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.destinations.delta.schema import delta_schema, lake_schema, largest_id
from headrace.destinations.delta.statistics import key_bounds, statistics_text, wide
from headrace.destinations.lake.bounds import bound_value
from headrace.destinations.lake.columns import column_plan
from headrace.destinations.lake.data_files import write_data
from headrace.destinations.lake.files import TableLayout, VectorForm

UTC = dt.UTC
TYPES = {
    "int": (pa.int32(), "integer", [-5, 7]),
    "long": (pa.int64(), "long", [-(1 << 62), 1 << 62]),
    "string": (pa.string(), "string", ["ä" * 20, "z" * 40]),
    "date": (pa.date32(), "date", [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "decimal(38, 10)": (
        pa.decimal128(38, 10),
        "decimal(38,10)",
        [Decimal("-1234567890123456789012345678.0123456789"), Decimal("9999999999999999999999999999.9999999999")],
    ),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        "timestamp",
        [dt.datetime(1969, 1, 1, 0, 0, 0, 1, UTC), dt.datetime(2024, 3, 31, 2, 30, 0, 123_999, UTC)],
    ),
    "timestamp": (
        pa.timestamp("us"),
        "timestamp_ntz",
        [dt.datetime(1969, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 3, 31, 2, 30, 0, 123_001)],  # noqa: DTZ001
    ),
}


def layout(kind: str, place: Path) -> TableLayout:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "v", "required": False, "type": kind}]}
    in_log = lake_schema(delta_schema(schema), "t")
    return TableLayout(
        "t", str(place), "f-", json.dumps(in_log), '{"spec-id": 0, "fields": []}', {}, vectors=VectorForm.DELTA
    )


@pytest.mark.parametrize("kind", TYPES)
def test_bounds_hold_the_values(kind: str, tmp_path: Path) -> None:
    arrow, _, values = TYPES[kind]
    it = layout(kind, tmp_path)
    (file,) = write_data(it, iter([pa.record_batch({"v": pa.array([*values, None], arrow)})])).data
    text = statistics_text(json.loads(file.json), it.schema_json, ())
    statistics = json.loads(text, parse_float=Decimal)
    assert statistics["numRecords"] == 3
    assert statistics["nullCount"] == {"c1": 1}
    assert set(statistics["minValues"]) == {"c1"}
    bounds = key_bounds(statistics, it.schema_json, [1])[1]
    field = column_plan(it.schema_json).iceberg.find_field(1)
    low, high = (bound_value(field.field_type, raw) for raw in bounds)
    raw = pa.array(values, arrow)
    plain = raw.cast(pa.int32()).cast(pa.int64()) if kind == "date" else raw.cast(pa.int64()) if "time" in kind else raw
    assert low <= min(plain.to_pylist())
    assert max(plain.to_pylist()) <= high


def test_floating_point_has_no_bounds(tmp_path: Path) -> None:
    it = layout("double", tmp_path)
    (file,) = write_data(it, iter([pa.record_batch({"v": pa.array([1.0, float("nan")])})])).data
    assert json.loads(statistics_text(json.loads(file.json), it.schema_json, ()))["maxValues"] == {}


@pytest.mark.parametrize("text", ['{"numRecords":1,"tightBounds":true}', '{"numRecords": 1}'])
def test_a_file_with_deleted_rows_has_wide_bounds(text: str) -> None:
    assert json.loads(wide(text)) == {"numRecords": 1, "tightBounds": False}


def test_a_schema_comes_back_as_it_was() -> None:
    fields = [
        {"id": number, "name": f'n "{number}', "required": False, "type": kind}
        for number, kind in enumerate(TYPES, start=1)
    ]
    nested = {"type": "struct", "fields": [fields[0] | {"id": 21}]}
    listed = {"type": "list", "element-id": 31, "element": "int", "element-required": False}
    fields += [
        {"id": 20, "name": "s", "required": False, "doc": "a comment", "type": nested},
        {"id": 30, "name": "l", "required": False, "type": listed},
    ]
    text = delta_schema({"type": "struct", "fields": fields})
    written = {field["name"]: field for field in json.loads(text)["fields"]}
    for number, (_, delta, _) in enumerate(TYPES.values(), start=1):
        assert written[f'n "{number}']["type"] == delta
    assert written["s"]["metadata"]["comment"] == "a comment"
    again = lake_schema(text, "t")
    assert largest_id(again) == 30
    assert delta_schema(again) == text


def test_a_wider_type_is_noted() -> None:
    before = lake_schema(delta_schema({"type": "struct", "fields": [{"id": 1, "name": "v", "type": "int"}]}), "t")
    after = json.loads(json.dumps(before))
    after["fields"][0]["type"] = "long"
    (field,) = json.loads(delta_schema(after, before))["fields"]
    assert field["type"] == "long"
    assert field["metadata"]["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
