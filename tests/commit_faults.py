"""Faults around a commit while the driver lives on, and a lake table on which every kind of commit meets them."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from py4j.protocol import Py4JNetworkError
from pyiceberg.catalog import Catalog, load_catalog

from delta_tables import delta_settings, read_delta
from headrace.config.iceberg import IcebergConfig, MaintenanceConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.delta import DeltaDestination
from headrace.destinations.delta.java import DeltaJava
from headrace.destinations.delta.table import DeltaTable
from headrace.destinations.iceberg import IcebergDestination
from headrace.destinations.iceberg.expired_files import DIRECTORY
from headrace.destinations.iceberg.maintenance.expiry import expire_snapshots
from headrace.destinations.iceberg.maintenance.orphans import remove_orphans
from headrace.destinations.iceberg.reachable import reachable_files
from headrace.destinations.iceberg.table import IcebergTable
from headrace.destinations.lake.destination import LakeDestination
from headrace.errors import DestinationError
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table
from headrace.testing.http_proxy import Fault as HttpFault
from headrace.testing.http_proxy import HttpProxy, Request
from headrace.testing.local_rows import (
    Altered,
    Deleted,
    Happening,
    Inserted,
    Truncated,
    Updated,
    batch_of,
    local_rows,
    transaction,
)
from headrace.testing.proxy import Loss, TcpProxy
from headrace.testing.rest_catalog import RestCatalogServer
from lakehouse import iceberg_settings, lake

__all__ = [
    "ICEBERG_OPERATIONS",
    "MAINTENANCE",
    "OPERATIONS",
    "DeltaFaults",
    "Fault",
    "FaultedTable",
    "IcebergFaults",
    "answered_around",
    "delta_table",
    "http_table",
    "iceberg_table",
    "killed_jvm",
    "lost_around",
    "rest_table",
]

ORDERS = example_table(1, "orders", {"id": "int8", "note": "text", "amount": "numeric"}, ("id",))
COUNTED = example_table(1, "orders", {"id": "int8", "note": "text", "amount": "numeric", "n": "int4"}, ("id",))
TABLE, QUARANTINE = "public.orders", "headrace.quarantine_1"
MAINTENANCE = {"enabled": False, "small_files": 2}
OPERATIONS = ("append", "merge", "truncate", "alter", "copy", "compaction", "quarantine")
ICEBERG_OPERATIONS = (*OPERATIONS, "expiry")
_CHILD = Path(__file__).parent / "faults" / "killed_jvm.py"
_PATIENCE_S = 240
_ONE_SNAPSHOT = MaintenanceConfig(snapshots_kept=1)
_HOUR_MS = 3_600_000

Rows = dict[int, tuple[Any, ...]]


class Fault(Enum):
    """When the way to the catalog is lost."""

    BEFORE = "before the commit request"
    LOST = "after the commit, before its answer"
    READING = "when the table is read after the commit"
    LATE = "before the commit, which is carried out when the next one is on its way"
    REPEATED = "nothing is lost, but a gateway repeats the request and passes on the second answer, a refusal"


class Reader(Protocol):
    def __call__(self, table: str) -> list[dict[str, Any]]:
        """Read all rows without Headrace. Raises if a file that the table names is missing."""


class FaultedTable:
    """A table on which one commit of any kind fails; then the work is done again, as the pipeline does it."""

    def __init__(self, destination: LakeDestination, read: Reader, spark: Any) -> None:
        self.destination, self.read, self._spark = destination, read, spark
        destination.startup(DestinationContext(1, MemoryStore(), spark, (ORDERS,), quarantine=True))
        destination.claim()
        self._schema, self._end = ORDERS, 100
        self.copy(0, {1: "a", 2: "b", 3: "c"})
        self.rows: Rows = {1: ("a", None), 2: ("b", None), 3: ("c", None)}
        # As many again, so that there is something to compact.
        self._stream(*(Inserted(ORDERS, _row(key, "d")) for key in (4, 5, 6)))
        self.rows |= dict.fromkeys((4, 5, 6), ("d", None))

    def faulted(self, operation: str, inject: Callable[[str], contextlib.AbstractContextManager[None]]) -> None:
        """Do it with a fault, check that the table is whole, do it again, and check all rows."""
        work = getattr(self, f"do_{operation}")
        before = dict(self.rows)
        with inject(QUARANTINE if operation == "quarantine" else TABLE):
            try:
                work()
            except DestinationError:
                self.rows = before
                self.check(must_be_old=False)
        work()
        self.check()
        if operation == "expiry":
            self.check_expired_files()
        self.go_on()

    def go_on(self) -> None:
        """Write what comes after, which goes on from there."""
        self._end += 100
        self.do_append()
        self._end += 100
        self.check()

    def check(self, *, must_be_old: bool = True) -> None:
        """All rows, each once. `must_be_old` false: an operation may have taken place or not."""
        found = self.read(TABLE)
        keys = [row["id"] for row in found]
        assert len(set(keys)) == len(keys), "a row is there twice"
        if must_be_old:
            assert {row["id"]: _values(row) for row in found} == self.rows

    def quarantined(self) -> list[str]:
        return sorted(row["text"] for row in self.read(QUARANTINE))

    def do_append(self) -> None:
        key = self._end
        self._stream(Inserted(self._schema, _row(key, "new")), end=self._end + 100)
        self.rows[key] = ("new", None)

    def do_merge(self) -> None:
        self._stream(Updated(ORDERS, _row(1, "changed")), Deleted(ORDERS, {"id": 2}), end=self._end + 100)
        self.rows[1] = ("changed", None)
        self.rows.pop(2, None)

    def do_truncate(self) -> None:
        self._stream(Truncated((ORDERS,)), Inserted(ORDERS, _row(9, "only")), end=self._end + 100)
        self.rows = {9: ("only", None)}

    def do_alter(self) -> None:
        added = Inserted(COUNTED, {**_row(7, "counted"), "n": 7})
        self._stream(Altered(ORDERS, COUNTED), added, end=self._end + 100)
        self.rows[7] = ("counted", 7)
        self._schema = COUNTED

    def do_copy(self) -> None:
        if 1 not in self.copied_parts():
            self.copy(1, {50: "e", 51: "f"})
        self.rows |= {50: ("e", None), 51: ("f", None)}

    def do_compaction(self) -> None:
        self.destination.maintain(ORDERS.table.name)

    def do_quarantine(self) -> None:
        rejected = {"key": '{"id": "60"}', "column": "amount", "text": "NaN", "commit_lsn": None, "tx_ordinal": None}
        if 2 not in self.copied_parts():
            rows = local_rows(ORDERS, [_row(60, "g")], spark=self._spark, rejected=[rejected])
            self.destination.write_table_rows(ORDERS, rows, 2)
        self.rows[60] = ("g", None)
        assert self.quarantined() == ["NaN"]

    def do_expiry(self, hours: float = 0) -> None:
        """Expire all snapshots but one; no file that one of them refers to goes before its retention time is over."""
        before = self._on_disk() if hours == 0 else set()
        now_ms = int(time.time() * 1000 + hours * _HOUR_MS)
        try:
            expire_snapshots(self.maintained_catalog(), self._held(), _ONE_SNAPSHOT, now_ms)
        finally:
            assert {path for path in before if not path.name.endswith(".metadata.json")} <= self._on_disk()

    def check_expired_files(self) -> None:
        """Check that after the retention time nothing is left of expired snapshots, and all else is there."""
        assert len(list(self._java_table().snapshots())) == 1
        assert list(self._location().glob(f"{DIRECTORY}/*")) != []
        self.do_expiry(hours=7)
        assert list(self._location().glob(f"{DIRECTORY}/*")) == []
        # A commit that failed leaves files that nobody refers to.
        later = dt.datetime.now(dt.UTC) + dt.timedelta(days=4)
        remove_orphans(self._catalog(), self._held(), _ONE_SNAPSHOT, later)
        in_use = {Path(f"/{path}") for path in reachable_files(self._catalog().java, self._java_table())}
        hint = self._location() / "metadata" / "version-hint.text"
        assert self._on_disk() == in_use - {hint}
        self.check()

    def maintained_catalog(self) -> Any:
        """Return the catalog that maintenance uses."""
        return self._catalog()

    def _catalog(self) -> Any:
        return self.destination._opened.catalog

    def _held(self) -> Any:
        return self.destination._opened.tables.named(ORDERS.table.name)

    def _java_table(self) -> Any:
        return self._catalog().load(self._held().name)

    def _location(self) -> Path:
        return Path(str(self._java_table().location()).removeprefix("file:"))

    def _on_disk(self) -> set[Path]:
        """All files of the table, its lists of expired files excepted."""
        return {path for path in self._location().rglob("*") if path.is_file() and path.parent.name != DIRECTORY}

    def copied_parts(self) -> frozenset[int]:
        return self.destination.copied_parts(ORDERS) or frozenset()

    def copy(self, part: int, rows: dict[int, str]) -> None:
        given = [_row(key, note) for key, note in rows.items()]
        self.destination.write_table_rows(ORDERS, local_rows(ORDERS, given, spark=self._spark), part)

    def _stream(self, *happened: Happening, end: int = 100) -> None:
        batch = batch_of(transaction(Lsn(end - 10), *happened), end=Lsn(end), spark=self._spark)
        self.destination.write_events(batch)


def _row(key: int, note: str) -> dict[str, Any]:
    return {"id": key, "note": note, "amount": None}


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["note"], row.get("n")


@contextlib.contextmanager
def iceberg_table(settings: IcebergConfig, catalog: Callable[[], Catalog], spark: Any) -> Iterator[FaultedTable]:
    """`catalog` opens a pyiceberg catalog to read by."""

    def read(table: str) -> list[dict[str, Any]]:
        opened = catalog()
        try:
            return list(opened.load_table(table).scan().to_arrow().to_pylist())
        finally:
            opened.close()

    destination = IcebergDestination(settings)
    try:
        yield FaultedTable(destination, read, spark)
    finally:
        destination.shutdown()


@contextlib.contextmanager
def delta_table(warehouse: Path, spark: Any) -> Iterator[FaultedTable]:
    destination = DeltaDestination(delta_settings(warehouse, maintenance=MAINTENANCE))
    try:
        yield FaultedTable(destination, lambda table: list(read_delta(warehouse, *table.split(".")).to_pylist()), spark)
    finally:
        destination.shutdown()


@contextlib.contextmanager
def rest_table(warehouse: Path, spark: Any) -> Iterator[tuple[FaultedTable, TcpProxy]]:
    """An Iceberg table whose REST catalog is reached through a proxy, and read without it."""
    with (
        RestCatalogServer(warehouse) as rest,
        TcpProxy(rest.port) as proxy,
        _rest_table(rest, proxy.port, warehouse, spark) as table,
    ):
        yield table, proxy
        proxy.heal()


@contextlib.contextmanager
def http_table(warehouse: Path, spark: Any) -> Iterator[tuple[FaultedTable, HttpProxy]]:
    """An Iceberg table whose REST catalog is reached through a proxy that can answer in its place."""
    with (
        RestCatalogServer(warehouse) as rest,
        HttpProxy(rest.port) as proxy,
        _rest_table(rest, proxy.port, warehouse, spark) as table,
    ):
        yield table, proxy


def _rest_table(
    rest: RestCatalogServer, port: int, warehouse: Path, spark: Any
) -> contextlib.AbstractContextManager[FaultedTable]:
    catalog = {"type": "rest", "uri": f"http://127.0.0.1:{port}", "properties": {"rest.client.max-retries": "1"}}
    settings = {"warehouse": str(warehouse), "catalog": catalog, "maintenance": MAINTENANCE}
    reader = partial(load_catalog, "rest", type="rest", uri=rest.uri)
    return iceberg_table(IcebergConfig.model_validate(settings), reader, spark)


@contextlib.contextmanager
def answered_around(proxy: HttpProxy, fault: HttpFault, times: int, table: str) -> Iterator[None]:
    """Have the next commits to a table meet a fault of HTTP, until the block ends."""
    namespace, name = table.split(".")
    met = proxy.met

    def is_commit(request: Request) -> bool:
        return request.method == "POST" and request.target == f"/v1/namespaces/{namespace}/tables/{name}"

    with proxy.misbehaving(fault, is_commit, times):
        yield
    assert proxy.met > met, "no commit was sent"


@contextlib.contextmanager
def lost_around(proxy: TcpProxy, loss: Loss, table: str) -> Iterator[None]:
    """Have the network go away around the next commit to a table, until the block ends."""
    namespace, name = table.split(".")
    lost = proxy.lost
    proxy.lose(loss, f"POST /v1/namespaces/{namespace}/tables/{name} ".encode())
    yield
    proxy.heal()
    assert proxy.lost == lost + 1, "no commit was sent"


@contextlib.contextmanager
def killed_jvm(warehouse: Path, moment: str, operation: str, spark: Any) -> Iterator[FaultedTable]:
    """The table as a driver left it whose JVM was killed around the commit of an operation (see `killed_jvm.py`)."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    child = subprocess.run(
        [sys.executable, str(_CHILD), str(warehouse), moment, operation],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert "jvm killed" in child.stdout
    settings = iceberg_settings(warehouse, maintenance=MAINTENANCE)
    with iceberg_table(settings, partial(lake, warehouse), spark) as table:
        yield table


def _gone() -> Py4JNetworkError:
    return Py4JNetworkError("Answer from Java side is empty")


class IcebergFaults:
    """Stands between `IcebergTable` and Iceberg's Java table."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._due: tuple[Fault, str] | None = None
        self._reading: str | None = None
        self._late: Callable[[], object] | None = None
        self.met = 0
        plain = IcebergTable.__init__

        def made(table: IcebergTable, java: Any, found: Any, layout: Any, key: Any, fence: Any = None) -> None:
            plain(table, java, _FaultyTable(found, layout.name, self), layout, key, fence)

        send = IcebergTable._send

        def sent(table: IcebergTable, transaction: Any) -> None:
            self.commit(table.layout.name, partial(send, table, transaction))

        patch.setattr(IcebergTable, "__init__", made)
        patch.setattr(IcebergTable, "_send", sent)
        catalog = FaultedTable.maintained_catalog
        patch.setattr(FaultedTable, "maintained_catalog", lambda table: _FaultyCatalog(catalog(table), self))

    @contextlib.contextmanager
    def inject(self, fault: Fault, table: str) -> Iterator[None]:
        self._due, met = (fault, table), self.met
        yield
        assert self.met == met + 1, "the fault was not met"

    def commit(self, table: str, send: Callable[[], object]) -> None:
        fault = None if self._due is None or self._due[1] != table else self._due[0]
        if fault is not None:
            self._due, self.met = None, self.met + 1
        if fault is Fault.LATE:
            self._late = send
        if fault in (Fault.BEFORE, Fault.LATE):
            raise _gone()
        if self._late is not None:
            late, self._late = self._late, None
            late()
        send()
        if fault is Fault.LOST:
            raise _gone()
        if fault is Fault.REPEATED:
            send()
            pytest.fail("a commit was carried out twice")
        self._reading = table if fault is Fault.READING else None

    def refresh(self, table: str, send: Callable[[], object]) -> None:
        if self._reading == table:
            self._reading = None
            raise _gone()
        send()


class _FaultyExpiry:
    """An expiry of snapshots: all of its methods but `apply` and `commit` return the expiry itself."""

    def __init__(self, expiry: Any, table: str, faults: IcebergFaults) -> None:
        self._expiry, self._table, self._faults = expiry, table, faults

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._expiry, name)
        if name == "apply":
            return member
        if name == "commit":
            return lambda: self._faults.commit(self._table, member)
        return lambda *given: _FaultyExpiry(member(*given), self._table, self._faults)


class _FaultyCatalog:
    """A catalog whose tables meet faults when their snapshots expire."""

    def __init__(self, catalog: Any, faults: IcebergFaults) -> None:
        self._catalog, self._faults, self.java = catalog, faults, catalog.java

    def load(self, name: tuple[str, ...]) -> Any:
        return _FaultyTable(self._catalog.load(name), ".".join(name), self._faults)


class _FaultyTable:
    def __init__(self, table: Any, name: str, faults: IcebergFaults) -> None:
        self._table, self._name, self._faults = table, name, faults

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._table, name)
        if name == "refresh":
            return lambda: self._faults.refresh(self._name, member)
        if name == "expireSnapshots":
            return lambda: _FaultyExpiry(member(), self._name, self._faults)
        return member


class DeltaFaults:
    """Stands between `DeltaTable` and Delta's log."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._due: tuple[Fault, str] | None = None
        self._reading = False
        self._late: tuple[Any, ...] | None = None
        self.met = 0
        commit, advance = DeltaTable._commit, DeltaTable._advance
        send, updated = DeltaJava.commit, DeltaJava.updated
        self._table = ""

        def committing(table: DeltaTable, *given: Any) -> None:
            self._table = table.layout.name
            commit(table, *given)

        def sent(java: DeltaJava, *given: Any) -> int:
            fault = None if self._due is None or self._due[1] != self._table else self._due[0]
            if fault is None and self._late is not None:
                late, self._late = self._late, None
                send(java, *late)
            if fault is None:
                return send(java, *given)
            self._due, self.met, self._reading = None, self.met + 1, fault is not Fault.LATE
            if fault is Fault.LATE:
                self._late = given
            if fault in (Fault.BEFORE, Fault.LATE):
                raise _gone()
            version = send(java, *given)
            if fault is Fault.LOST:
                raise _gone()
            return version

        def looked(java: DeltaJava, log: Any) -> Any:
            if self._reading:
                self._reading = False
                raise _gone()
            return updated(java, log)

        def advanced(table: DeltaTable, *given: Any) -> None:
            if self._reading:
                self._reading = False
                raise _gone()
            advance(table, *given)

        patch.setattr(DeltaTable, "_commit", committing)
        patch.setattr(DeltaTable, "_advance", advanced)
        patch.setattr(DeltaJava, "commit", sent)
        patch.setattr(DeltaJava, "updated", looked)

    @contextlib.contextmanager
    def inject(self, fault: Fault, table: str) -> Iterator[None]:
        self._due, met = (fault, table), self.met
        yield
        assert self.met == met + 1, "the fault was not met"
