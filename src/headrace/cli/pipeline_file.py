"""The text of the pipeline.yaml that `headrace init` writes: the chosen settings, the defaults one meets first, why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..config.connection import PgConnectionConfig

__all__ = ["PipelineFile"]

_HEAD = """\
# A Headrace pipeline: one publication of one Postgres database, to one destination.
#
#   headrace check {file}     is the source ready, and this machine?
#   headrace run {file}       copy the tables, then stream their changes
#   headrace status {file}    how it stands, from another terminal
#
# A variable HEADRACE__… wins over this file: HEADRACE__BATCH__MAX_FILL_MS=500 is batch.max_fill_ms.
# Lines that begin with `#: ` are settings with their defaults: take the mark away to change one.

# The pipeline's number: part of the names of its slot, its files and its connections. Give every pipeline that reads
# from the same server its own, and never change it while the pipeline lives.
id: {id}

# What is replicated: the tables of this publication.
publication_name: {publication}

"""
_LOGIN = """\
  # The password is not in this file. Give it as HEADRACE__PG_CONNECTION__PASSWORD or PGPASSWORD, keep it in ~/.pgpass,
  # or name here a file that holds nothing else:
  # password_file: /run/secrets/replicator
"""
_LOGIN_FILE = """\
  # Holds nothing but the password; read at every connect.
  password_file: {path}
"""
_ICEBERG = """\
  # Where the tables' files go: a directory, or a URI such as s3://bucket/path.
  warehouse: {warehouse}
"""
_LOCAL_CATALOG = """\
  # The tables' names are in a SQLite file, catalog.db in the warehouse, which Spark and pyiceberg share. Other
  # catalogs: rest, glue, hive. Secrets of a catalog belong into HEADRACE__DESTINATION__CATALOG__SECRETS, as JSON.
"""
_REMOTE_CATALOG = """\
  # The tables' names are in a SQLite file here, which Spark and pyiceberg share. Other catalogs: rest, glue, hive.
  # Secrets of catalog and warehouse belong into HEADRACE__DESTINATION__CATALOG__SECRETS, as JSON.
  catalog:
    type: sqlite
    uri: catalog.db
"""
_TABLES = """\
  # mirror: the current rows; changelog: every change as a row; soft_delete: the current rows, and deleted ones flagged.
  #: mode: mirror
  # Names at the destination, from those of the source.
  #: namespace: "{schema}"
  #: table_name: "{table}"
"""
_DELTA = """\
  # Where the tables are, each in a directory namespace/table: a directory, or a URI that Spark can reach (s3a://…).
  warehouse: {warehouse}
  # A catalog of the Spark session in which they are registered too, such as spark_catalog.
  #: catalog: null
"""
_DUCKDB = """\
  # The file, which is made; or md:NAME for a database at MotherDuck, with its token in HEADRACE__DESTINATION__TOKEN.
  database: ./headrace.duckdb
  # Whether the file is closed between batches, so that other processes can open it to read.
  #: release: false
"""
_DUCKLAKE = """\
  # The database with the lake's metadata: a SQLite file, a DuckDB file (type: duckdb) or Postgres (type: postgres, and
  # its connection string as uri; the password belongs into HEADRACE__DESTINATION__CATALOG__PASSWORD).
  catalog:
    type: sqlite
    uri: ./lake.sqlite
  # Where the tables' files go: a directory, or a URI such as s3://bucket/path.
  data_path: ./lake
"""
_PARQUET = """\
  # A directory of this pipeline alone, or any URI that fsspec knows: s3://bucket/prefix, gs://…, abfs://….
  location: ./changes
  # zstd, snappy, gzip or none.
  #: compression: zstd
"""
_WORDS = {
    "iceberg": "Apache Iceberg tables, format version 3.",
    "delta": "Delta Lake tables.",
    "duckdb": "A DuckDB database.",
    "ducklake": "DuckLake: Parquet files, with their metadata in a database.",
    "parquet": "Every change, as it came, in Parquet files.",
    "stdout": "Every event as a line of JSON on standard output.",
    "memory": "Rows in the memory of the process: for trials.",
    "null": "Nothing is kept: for measurements.",
}
_OTHERS = {"duckdb": _DUCKDB + _TABLES, "ducklake": _DUCKLAKE + _TABLES, "parquet": _PARQUET}
_TAIL = """
# Where the spool (raw changes on their way) and the store (states, progress) are. A relative path begins where the
# pipeline is started.
#: data_dir: .headrace

# copy_and_stream; copy_only: copy the tables and stop; stream_only: no copy, changes from now on.
#: mode: copy_and_stream

# When the slot has lost its WAL: error stops the pipeline, recreate makes a new slot and copies all tables again.
#: invalidated_slot_behavior: error

# A value that its type at the destination cannot hold: quarantine writes NULL and notes it, error stops the table.
#: on_unrepresentable: quarantine

#: batch:
  # Milliseconds that a batch waits for more changes.
  #: max_fill_ms: 1000
  # Bytes of raw WAL at which it is full.
  #: max_bytes: 67108864

#: spark:
  # Where Spark runs: in this process with all cores, or a cluster (spark://…, yarn, k8s://…).
  #: master: local[*]
  # Upper bound of the Java heap.
  #: driver_memory: 2g

#: metrics:
  # Whether to serve metrics for Prometheus.
  #: enabled: false
  #: host: 127.0.0.1
  #: port: 9000
"""


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """What was chosen. A password in `connection` is not written."""

    id: int
    publication: str
    connection: PgConnectionConfig
    destination: str
    warehouse: str

    def text(self, path: Path) -> str:
        """The file, to be written to `path`."""
        head = _HEAD.format(file=path, id=self.id, publication=scalar(self.publication))
        return head + self._source() + "\n" + self._destination() + _TAIL

    def _source(self) -> str:
        it = self.connection
        lines = ["# The source database. The role needs REPLICATION, and SELECT on the tables.", "pg_connection:"]
        fields = {"host": it.host, "hostaddr": it.hostaddr, "port": it.port, "name": it.name, "username": it.username}
        lines += [f"  {name}: {scalar(value)}" for name, value in fields.items() if value is not None]
        text = "\n".join(lines) + "\n"
        text += _LOGIN if it.password_file is None else _LOGIN_FILE.format(path=scalar(str(it.password_file)))
        more = it.model_dump(
            mode="json", include={"tls", "keepalive", "connect_timeout", "parameters"}, exclude_defaults=True
        )
        more = {name: value for name, value in more.items() if value}
        if more:
            dumped = yaml.safe_dump(more, sort_keys=False, allow_unicode=True)
            text += "".join(f"  {line}\n" for line in dumped.splitlines())
        return text

    def _destination(self) -> str:
        text = f"# {_WORDS[self.destination]}\ndestination:\n  kind: {scalar(self.destination)}\n"
        if self.destination in _OTHERS:
            return text + _OTHERS[self.destination]
        if self.destination == "delta":
            return text + _DELTA.format(warehouse=scalar(self.warehouse)) + _TABLES
        if self.destination != "iceberg":
            return text
        catalog = _REMOTE_CATALOG if "://" in self.warehouse else _LOCAL_CATALOG
        return text + _ICEBERG.format(warehouse=scalar(self.warehouse)) + catalog + _TABLES


def scalar(value: Any) -> str:
    """A value on one line, in quotes where YAML would read something else."""
    return yaml.safe_dump([value], default_flow_style=True, width=1 << 20, allow_unicode=True).strip()[1:-1]
