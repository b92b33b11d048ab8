"""telemetry.metrics: what is recorded, that pipelines do not collide, and the endpoint."""

from __future__ import annotations

import re
import socket
import urllib.request

import pytest
from prometheus_client import generate_latest

from headrace.errors import ConfigError
from headrace.lsn import Lsn
from headrace.schema import TableName
from headrace.table_state import State
from headrace.telemetry.metric_table import ALL_METRICS, CONSTANT_LABELS, Kind
from headrace.telemetry.metrics import Lag, Metrics

ORDERS = TableName("public", "orders")
ITEMS = TableName("public", "items")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(7, "memory")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"pipeline_id": "7", "destination": "memory", **labels})


def record_everything(metrics: Metrics) -> None:
    metrics.copy_planned(ORDERS, ranges=4, done=1)
    metrics.copied(ORDERS, rows=100, size=2000)
    metrics.copy_finished(ORDERS, 2.0)
    metrics.streamed(ORDERS, {"insert": 3, "delete": 1}, size=50)
    metrics.written(ORDERS, 0.2)
    metrics.batch_applied(0.5, 5000)
    metrics.lag(Lag(1, 2, 3, 6, 1.5))
    metrics.progress({"received": Lsn(500), "applied": Lsn(400)})
    metrics.slot_retained(10)
    metrics.spool_size(20)
    metrics.receiver_reconnected()
    metrics.destination_running(True)
    metrics.tables({State.READY: 2})
    metrics.table_failed(ORDERS, "destination_timeout")
    metrics.table_retried(ORDERS)
    metrics.quarantined(ORDERS, 5)
    metrics.memory_used(0.25)
    metrics.backpressure_changed(True)


def test_names_follow_the_rules_of_prometheus() -> None:
    assert len({metric.name for metric in ALL_METRICS}) == len(ALL_METRICS) > 20
    for metric in ALL_METRICS:
        assert re.fullmatch(r"headrace_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
        assert not set(metric.labels) & set(CONSTANT_LABELS)


def test_every_metric_can_be_recorded(metrics: Metrics) -> None:
    record_everything(metrics)
    shown = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    counts = {metric.name + ("_count" if metric.kind is Kind.HISTOGRAM else "") for metric in ALL_METRICS}
    assert counts - shown == set()


def test_what_is_recorded_is_shown(metrics: Metrics) -> None:
    record_everything(metrics)
    table = "public.orders"
    assert value(metrics, "headrace_copied_rows_total", table=table) == 100
    assert value(metrics, "headrace_copied_bytes_total", table=table) == 2000
    assert value(metrics, "headrace_copy_ranges_planned", table=table) == 4
    assert value(metrics, "headrace_copy_ranges_done", table=table) == 2
    assert value(metrics, "headrace_streamed_rows_total", table=table, op="insert") == 3
    assert value(metrics, "headrace_streamed_bytes_total", table=table) == 50
    assert value(metrics, "headrace_batches_total") == 1
    assert value(metrics, "headrace_batch_duration_seconds_sum") == 0.5
    assert value(metrics, "headrace_end_to_end_lag_bytes") == 6
    assert value(metrics, "headrace_progress_lsn", position="applied") == 400
    assert value(metrics, "headrace_table_errors_total", table=table, kind="destination_timeout") == 1
    assert value(metrics, "headrace_quarantined_values_total", table=table) == 5


def test_states_that_are_not_named_have_no_tables(metrics: Metrics) -> None:
    metrics.tables({State.INIT: 3})
    metrics.tables({State.READY: 3})
    assert {state: value(metrics, "headrace_tables", state=state.value) for state in State} == {
        state: 3 if state is State.READY else 0 for state in State
    }


def test_a_lag_nobody_knows_shows_no_old_value(metrics: Metrics) -> None:
    metrics.lag(Lag(seconds=3.0))
    metrics.lag(Lag(received_bytes=1))
    assert value(metrics, "headrace_lag_seconds") is None
    assert value(metrics, "headrace_received_lag_bytes") == 1


def test_backpressure_is_a_state_and_its_changes(metrics: Metrics) -> None:
    assert value(metrics, "headrace_memory_backpressure_active") == 0
    for active in (True, False, True):
        metrics.backpressure_changed(active)
    assert value(metrics, "headrace_memory_backpressure_active") == 1
    assert value(metrics, "headrace_memory_backpressure_transitions_total", direction="activated") == 2
    assert value(metrics, "headrace_memory_backpressure_transitions_total", direction="resumed") == 1


def test_a_table_that_left_is_forgotten_and_the_others_are_not(metrics: Metrics) -> None:
    record_everything(metrics)
    metrics.copied(ITEMS, rows=1, size=1)
    metrics.forget_table(ORDERS)
    text = generate_latest(metrics.registry).decode()
    assert "public.orders" not in text
    assert "public.items" in text
    assert value(metrics, "headrace_batches_total") == 1


def test_two_pipelines_in_one_process_do_not_collide(metrics: Metrics) -> None:
    other = Metrics(8, "memory")
    other.batch_applied(1.0, 1)
    assert value(metrics, "headrace_batches_total") == 0


def test_the_endpoint_answers_until_it_is_closed(metrics: Metrics) -> None:
    metrics.batch_applied(1.0, 1)
    with metrics.serve(port=0) as server:
        assert server.host == "127.0.0.1"
        url = f"http://127.0.0.1:{server.port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert 'headrace_batches_total{destination="memory",pipeline_id="7"} 1.0' in answer.read().decode()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) != 0


def test_a_port_that_is_taken_is_a_config_error(metrics: Metrics) -> None:
    with metrics.serve(port=0) as server, pytest.raises(ConfigError, match=f"port {server.port} .* is taken") as caught:
        metrics.serve(port=server.port)
    assert "metrics.port" in caught.value.hint


def test_an_address_of_another_machine_is_a_config_error(metrics: Metrics) -> None:
    with pytest.raises(ConfigError, match=r"cannot be served on port 0 of 192\.0\.2\.1") as caught:
        metrics.serve("192.0.2.1", 0)
    assert "metrics.host" in caught.value.hint
