"""What a batch costs that has next to nothing in it, over 1, 8 and 50 tables.

`null` keeps nothing; `spark` folds every table's changes and hands them to Spark's no-op sink, as a table destination
would to a MERGE.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import psycopg

from headrace.config.pipeline import PipelineConfig
from headrace.destinations.batch import Changes, EventBatch
from headrace.destinations.contract import Durability
from headrace.destinations.fold import folded
from headrace.destinations.null import NullDestination
from headrace.errors import DestinationRejected
from headrace.pipeline import Pipeline
from headrace.postgres.conninfo import parse_conninfo
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing import PostgresServer
from waiting import batch_totals, until, until_ready

BATCHES = 12
WARM_UP = 4


class SparkNoop(NullDestination):
    """Every table's folded changes through Spark into its no-op sink; a table named `broken` is refused."""

    name = "spark-noop"

    def write_events(self, batch: EventBatch) -> Durability:
        for table in batch.tables:
            _refuse_broken(table.schema.table.name.name)
            for step in table.steps:
                if isinstance(step, Changes):
                    folded(step).dataframe().write.format("noop").mode("append").save()
        return Durability.DURABLE


class Null(NullDestination):
    def write_events(self, batch: EventBatch) -> Durability:
        for table in batch.tables:
            _refuse_broken(table.schema.table.name.name)
        return super().write_events(batch)


def _refuse_broken(table: str) -> None:
    if table == "broken":
        msg = "this table is refused"
        raise DestinationRejected(msg)


def measure(spark: Any, destination: NullDestination, tables: int) -> dict[str, float]:
    """Seconds of a batch with one row of each table, and of one that has nothing for any table in step."""
    with (
        PostgresServer(17) as server,
        server.database("bench") as conninfo,
        psycopg.connect(conninfo, autocommit=True) as connection,
        tempfile.TemporaryDirectory() as directory,
    ):
        for number in range(tables):
            connection.execute(f"CREATE TABLE t{number} (id bigserial PRIMARY KEY, v text, n numeric(10, 2))")
        connection.execute("CREATE TABLE broken (id bigserial PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION bench FOR ALL TABLES")
        config = PipelineConfig(
            id=3,
            publication_name="bench",
            pg_connection=parse_conninfo(conninfo),
            data_dir=Path(directory),
            batch={"max_fill_ms": 1},
            spool={"segment_age_ms": 5},
            receiver={"status_interval_ms": 20},
        )
        with Pipeline(config, MemoryStore(), destination, spark=spark) as pipeline:
            pipeline.start()
            until_ready(pipeline)
            one = [_batch(pipeline, connection, [f"t{n}" for n in range(tables)]) for _ in range(WARM_UP + BATCHES)]
            connection.execute("INSERT INTO broken DEFAULT VALUES")
            until(pipeline, lambda s: s.tables["public.broken"].state.state is State.ERRORED)
            nothing = [_batch(pipeline, connection, ["broken"]) for _ in range(BATCHES)]
    return {"one_row_s": _middle(one[WARM_UP:]), "empty_s": _middle(nothing)}


def _batch(pipeline: Pipeline, connection: psycopg.Connection[Any], tables: list[str]) -> float:
    """The seconds that the batch with this transaction took, by the pipeline's own clock."""
    before = batch_totals(pipeline)
    with connection.transaction():
        for table in tables:
            columns = "DEFAULT VALUES" if table == "broken" else "(v, n) VALUES ('x', 1)"
            connection.execute(f"INSERT INTO {table} {columns}")
    until(pipeline, lambda _: batch_totals(pipeline)[0] > before[0], poll_s=0.002)
    return batch_totals(pipeline)[1] - before[1]


def _middle(values: list[float]) -> float:
    return round(sorted(values)[len(values) // 2], 4)


def run(spark: Any, counts: tuple[int, ...] = (1, 8, 50)) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for kind in (Null, SparkNoop):
        results[kind.name] = {str(count): measure(spark, kind(), count) for count in counts}
        print(f"  {kind.name}: {results[kind.name]}")
    return results
