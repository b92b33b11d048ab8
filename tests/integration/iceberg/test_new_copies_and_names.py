"""Iceberg tables that are copied again, under the eyes of their readers, and tables whose source is renamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import DestinationConflict, DestinationRejected
from headrace.schema import ReplicatedTableSchema, TableName
from headrace.table_state import State, TableState
from headrace.testing.local_rows import Altered, Deleted, Inserted, Updated
from iceberg_altering import Altering, column, table
from lakehouse import lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Altering]
ID = column(1, "id", "int4")
V1 = table(ID, column(2, "a", "int4"), column(3, "s", "text"))
V2 = table(ID, column(2, "a", "text"), column(4, "s", "date"), column(3, "t", "text"))
OLD = [{"id": 1, "a": 1, "s": "x"}, {"id": 2, "a": 2, "s": "y"}]
NEW = [{"id": 2, "a": "two", "s": None, "t": "y"}, {"id": 3, "a": "three", "s": None, "t": "z"}]


@pytest.fixture
def altering(tmp_path: Path, spark: SparkSession) -> Make:
    return lambda **settings: Altering(tmp_path / "warehouse", spark, **settings)


def _named(schema: ReplicatedTableSchema, name: str, table_id: int = 16_500) -> ReplicatedTableSchema:
    renamed = replace(schema.table, name=TableName(*name.split(".")), id=table_id)
    return replace(schema, table=renamed)


def _copied_once(lab: Altering) -> None:
    lab.copy(V1, *OLD[:1])
    lab.write(Inserted(V1, OLD[1]))


def _nothing_is_known(lab: Altering, schema: ReplicatedTableSchema) -> bool:
    return lab.destination.applied_lsn(schema) is None and lab.destination.copied_parts(schema) == frozenset()


@pytest.mark.parametrize("mode", ["mirror", "soft_delete"])
def test_readers_see_the_old_rows_until_the_new_ones_are_there(altering: Make, mode: str) -> None:
    lab = altering(mode=mode)
    _copied_once(lab)
    if mode == "soft_delete":
        lab.write(Deleted(V1, {"id": 1}))
    old = lab.read()
    own = {"_headrace_deleted": False, "_headrace_deleted_at": None} if mode == "soft_delete" else {}
    for _ in range(2):
        lab.destination.drop_table_for_copy(V2)
        assert _nothing_is_known(lab, V2)
        # Also by a pipeline that is started anew.
        lab.restart(V2)
        assert _nothing_is_known(lab, V2)
        assert lab.read() == old
    before = len(lab.table().metadata.metadata_log)
    lab.copy(V2, *NEW)
    assert lab.read() == [{**row, **own} for row in NEW]
    assert len(lab.table().metadata.metadata_log) == before + 1
    assert lab.destination.copied_parts(V2) == {0}
    assert lab.destination.applied_lsn(V2) is None
    assert "headrace.lsn" not in lab.table().properties
    # It was the same table all the time: what readers refer to is still there.
    assert len({snapshot.snapshot_id for snapshot in lab.table().snapshots()}) > 2
    lab.restart(V2)
    lab.write(Updated(V2, {**NEW[0], "a": "2"}))
    assert lab.read() == [{**NEW[0], "a": "2", **own}, {**NEW[1], **own}]
    assert lab.table().schema().identifier_field_names() == {"id"}


def test_an_empty_copy_takes_the_place_too(altering: Make) -> None:
    lab = altering()
    _copied_once(lab)
    lab.destination.drop_table_for_copy(V1)
    lab.copy(V1)
    assert lab.read() == []
    assert not _nothing_is_known(lab, V1)


def test_a_table_that_is_made_otherwise_now_is_made_anew(altering: Make) -> None:
    lab = altering()
    _copied_once(lab)
    uuids = [lab.table().metadata.table_uuid]
    for settings in (
        {"mode": "soft_delete"},
        {"tables": {"public.t": {"partition_by": ["bucket(2, id)"]}}},
        {"tables": {"public.t": {"partition_by": ["bucket(2, id)"], "sort_by": ["-a"]}}},
        {"mode": "changelog", "tables": {}},
    ):
        lab.restart(V1, **settings)
        lab.destination.drop_table_for_copy(V1)
        assert not lake(lab.warehouse).table_exists("public.t")
        lab.copy(V1, *OLD)
        uuids.append(lab.table().metadata.table_uuid)
        assert [row["id"] for row in lab.read()] == [1, 2]
    assert len(set(uuids)) == len(uuids)


def test_a_partitioned_table_stays_unless_its_partitions_go(altering: Make) -> None:
    lab = altering(published=V1, tables={"public.t": {"partition_by": ["a"], "sort_by": ["s"]}})
    _copied_once(lab)
    first = lab.table().metadata.table_uuid
    renamed = table(ID, column(2, "aa", "int4"), column(3, "s", "text"), column(4, "more", "int4"))
    lab.destination.drop_table_for_copy(renamed)
    lab.copy(renamed, {"id": 5, "aa": 6, "s": "x", "more": 7})
    assert lab.read() == [{"id": 5, "aa": 6, "s": "x", "more": 7}]
    assert lab.table().metadata.table_uuid == first
    # The partitions' column has another type when the copy begins than it had when it was decided on.
    lab.restart(V1)
    lab.destination.drop_table_for_copy(renamed)
    other = table(ID, column(2, "a", "text"), column(3, "s", "text"))
    lab.copy(other, {"id": 1, "a": "b", "s": "x"})
    assert lab.table().metadata.table_uuid != first
    assert lab.read() == [{"id": 1, "a": "b", "s": "x"}]


@pytest.mark.parametrize("mode", ["mirror", "changelog"])
def test_a_source_table_that_was_created_again(altering: Make, mode: str) -> None:
    lab = altering(mode=mode)
    _copied_once(lab)
    again = _named(V2, "public.t", 16_999)
    assert _nothing_is_known(lab, again)
    lab.store.update_table_states({16_500: TableState(State.INIT)})
    with pytest.raises(DestinationConflict, match="still belongs to another table"):
        lab.copy(again, *NEW)
    lab.store.delete_table(16_500)
    lab.copy(again, *NEW)
    own = [{name: value for name, value in row.items() if not name.startswith("_headrace_")} for row in lab.read()]
    assert own == NEW
    assert ("_headrace_op" in lab.read()[0]) == (mode == "changelog")
    assert lab.table().properties["headrace.table-id"] == "16999"


def test_a_renamed_source_is_followed(altering: Make) -> None:
    lab = altering()
    _copied_once(lab)
    moved = _named(V1, "other.u")
    last = _named(table(*V1.columns, column(4, "n", "int4", "4")), "third.u")
    lab.write(Altered(V1, moved), Deleted(moved, {"id": 1}), Altered(moved, last), Inserted(last, {"id": 7, "n": 7}))
    expected = [{**OLD[1], "n": 4}, {"id": 7, "a": None, "s": None, "n": 7}]
    assert lab.read("third.u") == expected
    assert not lake(lab.warehouse).table_exists("public.t")
    assert not lake(lab.warehouse).table_exists("other.u")
    assert lab.table("third.u").properties["headrace.source-table"] == "third.u"
    lab.write(Updated(last, {"id": 7, "a": 1, "s": None, "n": 8}))
    # Renamed while the pipeline was down: it is found by its OID, and renamed when the stream comes there.
    newest = _named(last, "public.t")
    lab.restart(newest)
    assert lab.destination.applied_lsn(newest) == lab.lsn
    lab.write(Altered(last, newest), Deleted(newest, {"id": 7}))
    assert lab.read() == expected[:1]
    lab.destination.maintain(newest.table.name)
    # Renamed and copied again: what the stream told before it does not come.
    copied = _named(last, "other.w")
    lab.destination.drop_table_for_copy(copied)
    lab.copy(copied, {"id": 8})
    assert [row["id"] for row in lab.read("other.w")] == [8]
    assert not lake(lab.warehouse).table_exists("public.t")


@pytest.mark.parametrize("settings", [{"on_table_rename": "keep"}, {"tables": {"public.t": {"name": "my.own"}}}])
def test_a_name_that_is_kept(altering: Make, settings: dict[str, Any]) -> None:
    lab = altering(published=V1, **settings)
    name = "my.own" if "tables" in settings else "public.t"
    _copied_once(lab)
    renamed = _named(V1, "public.u")
    lab.write(Altered(V1, renamed), Deleted(renamed, {"id": 1}))
    assert lab.read(name) == OLD[1:]
    # The settings still name it as it was called.
    lab.restart(renamed)
    lab.write(Deleted(renamed, {"id": 2}))
    assert lab.read(name) == []
    lab.destination.drop_table_for_copy(renamed)
    lab.copy(renamed, *OLD)
    assert lab.read(name) == OLD


def test_names_that_are_taken(altering: Make) -> None:
    lab = altering()
    one, other = V1, _named(V1, "public.u", 16_501)
    lab.copy(one, *OLD)
    lab.copy(other)
    lab.store.update_table_states({16_500: TableState(State.INIT), 16_501: TableState(State.INIT)})
    # The two change their names by way of a third, in one transaction at the source.
    between, end = _named(one, "public.v"), _named(one, "public.u")
    lab.write(Altered(one, between), Altered(between, end), Deleted(end, {"id": 1}))
    # The other waits under a name of its own until its rename comes.
    assert lab.read("public.u__headrace_16501") == []
    other_end = _named(other, "public.t", 16_501)
    lab.write(Altered(other, other_end), Inserted(other_end, OLD[0]))
    assert (lab.read("public.t"), lab.read("public.u")) == (OLD[:1], OLD[1:])
    lab.sql("CREATE TABLE headrace.public.mine (id int) USING iceberg")
    with pytest.raises(DestinationRejected, match=r"there is a table public\.mine already") as caught:
        lab.write(Altered(end, _named(one, "public.mine")), Deleted(end, {"id": 2}))
    assert 'destination.tables."public.mine".name' in str(caught.value.hint)
    assert lab.read("public.u") == OLD[1:]
