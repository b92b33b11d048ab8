"""config.pipeline: defaults, what is made from them, what is refused, and that no secret shows."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.config.pipeline import InvalidatedSlotBehavior, OnUnrepresentable, PipelineConfig, PipelineMode, StoreKind
from headrace.config.receiver import ReceiverConfig
from headrace.config.spool import SpoolConfig
from headrace.config.table_copy import CopyConfig, TableSyncCopyConfig
from headrace.initial_copy.ranges import CopyOptions
from headrace.schema import TableName

SECRET = "do-not-show-me"
CONNECTION = {"host": "db", "name": "shop", "username": "replicator", "password": SECRET}


def config(**more: Any) -> PipelineConfig:
    return PipelineConfig.model_validate({"id": 7, "publication_name": "p", "pg_connection": CONNECTION, **more})


def test_defaults_are_those_of_the_seeds_and_ours() -> None:
    it = config()
    assert (it.batch.max_fill_ms, it.batch.max_bytes, it.batch.memory_budget_ratio) == (1000, 64 << 20, 0.2)
    assert (it.table_error_retry_delay_ms, it.table_error_retry_max_attempts) == (10_000, None)
    assert (it.max_table_sync_workers, it.max_copy_connections_per_table) == (4, 4)
    assert (it.memory_refresh_interval_ms, it.replication_lag_refresh_interval_ms) == (100, 10_000)
    assert it.memory_backpressure is not None
    assert (it.memory_backpressure.activate_threshold, it.memory_backpressure.resume_threshold) == (0.85, 0.75)
    assert it.mode is PipelineMode.COPY_AND_STREAM
    assert it.invalidated_slot_behavior is InvalidatedSlotBehavior.ERROR
    assert it.on_unrepresentable is OnUnrepresentable.QUARANTINE
    assert (it.metrics.enabled, it.metrics.host, it.metrics.port) == (False, "127.0.0.1", 9000)


def test_the_copy_is_cut_as_the_copy_itself_would() -> None:
    options = CopyOptions()
    assert dict(CopyConfig()) == {name: getattr(options, name) for name in CopyConfig.model_fields}


def test_names_and_places_follow_from_the_id() -> None:
    it = config()
    assert it.slot_name == "headrace_7"
    assert it.spool_config() == SpoolConfig(uri=".headrace/pipeline-7/spool")
    assert it.store_path == Path(".headrace/pipeline-7/store.db")
    assert (it.store.kind, it.data_dir) == (StoreKind.SQLITE, Path(".headrace"))


def test_names_and_places_can_be_given(tmp_path: Path) -> None:
    it = config(
        slot_name="mine",
        data_dir=tmp_path,
        spool={"uri": "s3://b/p", "segment_age_ms": 5, "storage_options": {"key": "k"}},
        store={"path": tmp_path / "s.db"},
    )
    assert it.slot_name == "mine"
    assert it.directory == tmp_path / "pipeline-7"
    assert it.store_path == tmp_path / "s.db"
    assert it.spool_config() == SpoolConfig(uri="s3://b/p", segment_age_ms=5, storage_options={"key": "k"})


def test_the_receiver_gets_its_settings() -> None:
    it = config(receiver={"streaming": False, "status_interval_ms": 77}, spool={"durable": False})
    receiver = it.receiver_config()
    assert receiver == ReceiverConfig(
        pg_connection=it.pg_connection,
        publication_name="p",
        slot_name="headrace_7",
        spool=SpoolConfig(uri=".headrace/pipeline-7/spool", durable=False),
        pipeline_id=7,
        streaming=False,
        status_interval_ms=77,
    )
    assert receiver.pg_connection.read_password() == it.pg_connection.read_password()


def test_a_spool_keeps_a_minute_of_applied_segments() -> None:
    assert SpoolConfig(uri="x").keep_seconds == 60


@pytest.mark.parametrize(
    ("settings", "copied"),
    [
        ({}, ["s.a", "s.b"]),
        ({"type": "skip_all_tables"}, []),
        ({"type": "include_tables", "tables": ["s.a"]}, ["s.a"]),
        ({"type": "skip_tables", "tables": ["s.a"]}, ["s.b"]),
    ],
)
def test_which_tables_are_copied(settings: dict[str, Any], copied: list[str]) -> None:
    it = TableSyncCopyConfig.model_validate(settings)
    assert [str(table) for table in (TableName("s", "a"), TableName("s", "b")) if it.copies(table)] == copied


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"table_sync_copy": {"type": "include_tables"}}, "tables must be given"),
        ({"table_sync_copy": {"tables": ["s.a"]}}, "tables must be left out"),
        ({"table_sync_copy": {"type": "skip_tables", "tables": ["a"]}}, "schema.table"),
        ({"table_sync_copy": {"type": "skip_tables", "tables": [".a"]}}, "schema.table"),
        ({"memory_backpressure": {"activate_threshold": 0.75}}, "resume_threshold must be below"),
        ({"store": {"kind": "memory", "path": "x"}}, "path must be left out"),
        ({"store_pg_connection": CONNECTION}, "store.kind be postgres"),
        ({"slot_name": "Not-a-slot"}, "1 to 63 of a-z, 0-9 and _"),
        ({"id": -1}, "greater than or equal to 0"),
        ({"batch": {"max_size": 1}}, "Extra inputs"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        config(**settings)


def test_what_can_be_turned_off() -> None:
    it = config(memory_backpressure=None, initial_copy={"key_ranges_over_bytes": None})
    assert it.memory_backpressure is None
    assert it.initial_copy.key_ranges_over_bytes is None
    postgres = config(store={"kind": "postgres"}, store_pg_connection=CONNECTION)
    assert postgres.store_pg_connection == postgres.pg_connection


def test_no_secret_shows_in_a_rendering_or_an_error() -> None:
    it = config(
        destination={"kind": "warehouse", "password": SECRET, "nested": {"token": SECRET}},
        spool={"storage_options": {"secret": SECRET}},
    )
    assert it.destination is not None
    assert it.destination.options == {"password": SECRET, "nested": {"token": SECRET}}
    assert SECRET not in repr(it) + str(it) + repr(it.receiver_config())
    for wrong in ({"pg_connection": {**CONNECTION, "password": [SECRET]}}, {"destination": SECRET}, {"spool": SECRET}):
        with pytest.raises(ValidationError) as caught:
            config(**wrong)
        assert SECRET not in str(caught.value)


def test_it_is_frozen_and_pickles() -> None:
    it = config(destination={"kind": "memory", "x": 1})
    assert pickle.loads(pickle.dumps(it)) == it
    with pytest.raises(ValidationError, match="frozen"):
        it.id = 8  # type: ignore[misc]
