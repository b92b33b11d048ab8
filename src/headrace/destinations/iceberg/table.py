"""One Iceberg table: its live files, and commits that hold rows, deletes and the record of the pipeline at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from ...errors import DestinationError, DestinationRejected
from ..lake.fence import Fence
from ..lake.files import DeletionVector, LiveFile, TableLayout, Written
from ..lake.java_errors import CommitStateUnknown, TableGone, commit_errors, java_errors, may_be_committed
from ..lake.operations import Files, Operation, key_ids, live_file
from ..lake.record import LSN, PARTS, Record
from .altering import apply_alteration
from .java import Java

__all__ = ["IcebergTable", "removed_files"]

_log = structlog.get_logger("headrace.destinations.iceberg")

_MAX_ANCESTORS = 10_000


class IcebergTable:
    """A table as it was when last refreshed. Used by one thread at a time."""

    def __init__(
        self, java: Java, table: Any, layout: TableLayout, key: tuple[str, ...] | None, fence: Fence | None = None
    ) -> None:
        self._java, self._table = java, table
        self.fence = fence or Fence(0)
        self.layout, self.key = layout, key
        self.keys = key_ids(layout.schema_json, key)
        self._schema_id = int(json.loads(layout.schema_json).get("schema-id", 0))
        self._known: Files | None = None
        self._recorded: tuple[int | None, Record] | None = None
        self._behind = False

    def refresh(self) -> None:
        with java_errors(f"look at table {self.layout.name}"):
            self._table.refresh()
            self._behind = False

    @property
    def table_id(self) -> str:
        return str(self._table.uuid())

    def is_as_laid_out(self) -> bool:
        """Whether the layout has the schema that the table has, as of the last refresh."""
        with java_errors(f"read the schema of table {self.layout.name}"):
            return int(self._table.schema().schemaId()) == self._schema_id

    def properties(self) -> dict[str, str]:
        self._catch_up()
        with java_errors(f"read the properties of table {self.layout.name}"):
            return self._java.mapping(self._table.properties())

    def last_field_id(self) -> int:
        with java_errors(f"read the schema of table {self.layout.name}"):
            return int(self._table.operations().current().lastColumnId())

    def pinned_fields(self) -> frozenset[int]:
        """The fields that partitions, of today and of before, and the sort order are made from."""
        with java_errors(f"read the partitions of table {self.layout.name}"):
            parsers = self._java.iceberg
            texts = [parsers.PartitionSpecParser.toJson(spec) for spec in self._table.specs().values()]
            texts.append(parsers.SortOrderParser.toJson(self._table.sortOrder()))
        return frozenset(int(field["source-id"]) for text in texts for field in json.loads(text)["fields"])

    def set_property(self, name: str, value: str) -> None:
        """Not conditional on anything but the epoch."""
        doing = f"set a property of table {self.layout.name}"
        self.fence.admit(self.properties(), self.layout.name)
        with java_errors(doing):
            update = self._table.updateProperties().set(name, value)
        self._commit(update.commit, doing)

    def record(self) -> Record:
        """As of the last refresh; read only if another writer's commit came between."""
        self._catch_up()
        with java_errors(f"read the state of table {self.layout.name}"):
            snapshot = self._table.currentSnapshot()
            if self._recorded is not None and snapshot is not None and self._recorded[0] == snapshot.snapshotId():
                return self._recorded[1]
            return self._read_record(snapshot)

    def _read_record(self, snapshot: Any) -> Record:
        properties = self._java.mapping(self._table.properties())
        for _ in range(_MAX_ANCESTORS):
            if snapshot is None:
                break
            summary = self._java.mapping(snapshot.summary())
            if LSN in summary or PARTS in summary:
                return Record.read(properties, summary)
            parent = snapshot.parentId()
            snapshot = None if parent is None else self._table.snapshot(parent)
        return Record.read(properties, None)

    def files(self) -> Files:
        """The live files of the snapshot last refreshed; read only if another writer's commit came between."""
        self._catch_up()
        with java_errors(f"list the files of table {self.layout.name}"):
            snapshot = self._table.currentSnapshot()
            identifier = None if snapshot is None else int(snapshot.snapshotId())
            if self._known is None or self._known.snapshot != identifier:
                self._known = Files(identifier, {} if snapshot is None else self._planned())
            return self._known

    def scan(self, *, bounds: bool = False) -> tuple[Any, dict[str, Any]]:
        """Java's scan tasks of the snapshot last refreshed, and what they say, in the same order, as a REST server
        would answer: all files in one text, instead of a call over the bridge for each value.
        """
        iceberg, scan = self._java.iceberg, self._table.newScan()
        tasks = self._java.list_of((scan.includeColumnStats() if bounds else scan).planFiles())
        response = iceberg.rest.responses.FetchScanTasksResponse.builder(self._table.specs()).withFileScanTasks(tasks)
        return tasks, json.loads(iceberg.rest.responses.FetchScanTasksResponseParser.toJson(response.build()))

    def _planned(self) -> dict[str, LiveFile]:
        _, answer = self.scan(bounds=True)
        deletes = answer.get("delete-files", [])
        live = {}
        for task in answer.get("file-scan-tasks", []):
            file = live_file(task["data-file"], self.keys)
            for index in task.get("delete-file-references", []):
                file = replace(file, vector=self._vector(deletes[index]))
            live[file.path] = file
        return live

    def _vector(self, entry: Mapping[str, Any]) -> DeletionVector:
        if entry.get("file-format", "").lower() != "puffin":
            msg = f"table {self.layout.name} has delete files that Headrace did not write: {entry.get('content')}"
            raise DestinationRejected(msg, hint="compact the table (CALL system.rewrite_data_files), then roll back")
        return DeletionVector(
            referenced=entry["referenced-data-file"],
            path=entry["file-path"],
            offset=entry["content-offset"],
            length=entry["content-size-in-bytes"],
            records=entry["record-count"],
            json=json.dumps(entry),
        )

    def commit(self, planned: Files, operations: Iterable[Operation], record: Record) -> None:
        """All operations and the record, or nothing.

        `planned` are the files that the operations were made for, and `record` follows the one that was read with them.
        Raises DestinationConflict if anybody has committed a snapshot since: refresh, and do the work again.
        """
        doing = f"commit to table {self.layout.name}"
        marks = self.fence.admit(self.properties(), self.layout.name)
        with java_errors(doing):
            transaction = self._table.newTransaction()
            files, snapshots = self._stage(transaction, planned, operations, record)
            self._set_properties(transaction, record, marks)
        if self._commit_transaction(transaction, doing):
            self._know(planned, files, snapshots, record)

    def _stage(
        self, transaction: Any, planned: Files, operations: Iterable[Operation], record: Record
    ) -> tuple[Files, int]:
        """Put everything into the transaction. Returns the files it leaves, and how many snapshots it makes."""
        files, snapshots = planned, 0
        # Iceberg would put the commit on top of whatever there is. It stands on what was planned for, or not at all.
        base: Any = self._java.follows(planned.snapshot)
        for operation in operations:
            if operation.alteration is not None:
                apply_alteration(self._java, transaction, operation.alteration, self.layout.name)
            if operation.truncate:
                self._delete_all(transaction, record, base)
                files, snapshots, base = Files(self._current(transaction)), snapshots + 1, None
            if operation.alteration is not None and operation.written == Written():
                continue
            self._apply(transaction, files, operation.written, (record, base))
            files, snapshots, base = files.after(operation.written, self.keys), snapshots + 1, None
            files = replace(files, snapshot=self._current(transaction))
        if not snapshots:
            # The snapshot carries the record.
            self._apply(transaction, files, Written(), (record, base))
            snapshots = 1
        return files, snapshots

    def _commit_transaction(self, transaction: Any, doing: str) -> bool:
        """Commit a transaction that makes snapshots. Returns whether the table was read again after it.

        An error that should prove that nothing was committed is believed only if the table has no such snapshot: a
        gateway that repeats a request answers the second one, which is refused because the first was carried out.
        """
        with java_errors(doing):
            staged = self._current(transaction)
        try:
            read_again = self._commit(partial(self._send, transaction), doing)
        except DestinationError as error:
            if may_be_committed(error) or not self._has_snapshot(staged, doing):
                raise
            read_again = True
        self._remove_unused_manifests(transaction)
        return read_again

    def _send(self, transaction: Any) -> None:
        """Send the commit request of a transaction, once.

        Iceberg's own `commitTransaction` repeats a request that was refused. When it gives up it deletes the manifests,
        although the first request may have been carried out.
        """
        transaction.underlyingOps().commit(transaction.startMetadata(), transaction.currentMetadata())

    def _has_snapshot(self, snapshot: int | None, doing: str) -> bool:
        """Read the table, and return whether it has a snapshot. Raises CommitStateUnknown if it cannot be read."""
        try:
            self.refresh()
            with java_errors(doing):
                return snapshot is not None and self._table.snapshot(snapshot) is not None
        except TableGone:
            return False
        except DestinationError as error:
            raise CommitStateUnknown(f"cannot {doing}", detail=error.detail) from None

    def _remove_unused_manifests(self, transaction: Any) -> None:
        """Delete manifests that a committed transaction wrote and then merged into others."""
        try:
            with java_errors(f"remove manifests of table {self.layout.name}"):
                self._java.remove_files(self._table.io(), self._java.unused_manifests(transaction))
        except Exception as error:  # noqa: BLE001 - the commit took place; the search for orphans finds them
            _log.warning("unused manifests are left", table=self.layout.name, error=type(error).__name__)

    def _commit(self, send: Callable[[], object], doing: str) -> bool:
        """Send a commit request. Returns whether the table was read again after it.

        Raises CommitStateUnknown unless it is certain that nothing was committed. What fails after the commit is no
        failure of it: the table is read again at its next use.
        """
        self._known = self._recorded = None
        self._behind = True
        with commit_errors(doing):
            send()
        try:
            self.refresh()
        except Exception as error:  # noqa: BLE001 - whatever it is, the commit took place
            _log.warning("committed, but not read back yet", table=self.layout.name, error=type(error).__name__)
        return not self._behind

    def _know(self, planned: Files, files: Files, snapshots: int, record: Record | None = None) -> None:
        """Keep what is known of the table after a commit of ours, if nobody else's came between."""
        try:
            with java_errors(f"look at table {self.layout.name}"):
                self._known = self._confirmed(planned, files, snapshots)
        except Exception as error:  # noqa: BLE001 - whatever it is, the commit took place
            _log.warning("committed, but not read back yet", table=self.layout.name, error=type(error).__name__)
            return
        if record is not None and self._known is not None:
            self._recorded = self._known.snapshot, record

    def _catch_up(self) -> None:
        """Read the table again, if that failed after the last commit."""
        if self._behind:
            self.refresh()

    @staticmethod
    def _set_properties(transaction: Any, record: Record, marks: Mapping[str, str]) -> None:
        properties = transaction.updateProperties()
        for name, value in {**record.summary(), **marks}.items():
            properties.set(name, value)
        if record.lsn is None:
            properties.remove(LSN)
        properties.commit()

    def replace_files(self, planned: Files, written: Written) -> None:
        """Put files in the place of others that hold the same rows. Raises DestinationConflict as `commit` does.

        The snapshot carries no record.
        """
        doing = f"rewrite files of table {self.layout.name}"
        there = sum(planned.live[path].records for path in written.emptied)
        self.fence.admit(self.properties(), self.layout.name)
        with java_errors(doing):
            # More rows than leave the table, some of them deleted at once, Iceberg does not call a replacement. It is
            # so when the stream emptied some of the files meanwhile.
            transaction = self._table.newTransaction()
            if sum(file.records for file in written.data) > there:
                operation = self._row_delta(transaction, planned, written, self._table.specs())
            else:
                operation = self._rewrite(transaction, planned, written)
            operation.validateWith(self._java.follows(planned.snapshot))
            operation.commit()
            after = planned.after(written, self.keys)
        if self._commit_transaction(transaction, doing):
            self._know(planned, after, 1)

    def _rewrite(self, transaction: Any, planned: Files, written: Written) -> Any:
        specs, rewrite = self._table.specs(), transaction.newRewrite()
        if planned.snapshot is not None:
            rewrite.validateFromSnapshot(planned.snapshot)
        for file in removed_files(planned, written):
            rewrite.deleteFile(self._java.content_file(file, specs))
        for added in (*(file.json for file in written.data), *(vector.json for vector in written.vectors)):
            rewrite.addFile(self._java.content_file(added, specs))
        return rewrite

    def add(self, written: Written, properties: Mapping[str, str | None]) -> None:
        """Files and properties (None: removed), or nothing; the record stays.

        Without files, too, there is a snapshot: a REST catalog checks nothing where only properties change.
        """
        doing = f"commit to table {self.layout.name}"
        marks = self.fence.admit(self.properties(), self.layout.name)
        with java_errors(doing):
            snapshot = self._table.currentSnapshot()
            base = self._java.follows(None if snapshot is None else int(snapshot.snapshotId()))
            transaction = self._table.newTransaction()
            if written.vectors or written.emptied:
                operation = self._row_delta(transaction, self.files(), written, self._table.specs())
            else:
                operation = transaction.newAppend()
                for file in written.data:
                    operation.appendFile(self._java.content_file(file.json, self._table.specs()))
            operation.validateWith(base)
            operation.commit()
            update = transaction.updateProperties()
            for name, value in {**marks, **properties}.items():
                if value is None:
                    update.remove(name)
                else:
                    update.set(name, value)
            update.commit()
        self._commit_transaction(transaction, doing)

    @property
    def java_table(self) -> Any:
        """For Iceberg's own maintenance."""
        return self._table

    def _confirmed(self, planned: Files, files: Files, snapshots: int) -> Files | None:
        """What is known of the new snapshot: all, if so many of ours stand on the one planned for, and no other's."""
        current = snapshot = self._table.currentSnapshot()
        parent = None
        for _ in range(snapshots):
            if current is None:
                return None
            parent = current.parentId()
            current = None if parent is None else self._table.snapshot(parent)
        return Files(int(snapshot.snapshotId()), files.live) if parent == planned.snapshot else None

    @staticmethod
    def _current(transaction: Any) -> int | None:
        snapshot = transaction.table().currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    def _delete_all(self, transaction: Any, record: Record, base: Any) -> None:
        delete = transaction.newDelete()
        if base is not None:
            delete.validateWith(base)
        delete.deleteFromRowFilter(self._java.iceberg.expressions.Expressions.alwaysTrue())
        self._summarise(delete, record)
        delete.commit()

    def _apply(self, transaction: Any, files: Files, written: Written, follows: tuple[Record, Any]) -> None:
        """`follows`: the record, and the validator of what the snapshot must stand on, if it is the first."""
        (record, base), specs = follows, self._table.specs()
        if not written.vectors and not written.emptied:
            # Also without files: the snapshot carries the record.
            operation = transaction.newAppend()
            for file in written.data:
                operation.appendFile(self._java.content_file(file.json, specs))
        else:
            operation = self._row_delta(transaction, files, written, specs)
        if base is not None:
            operation.validateWith(base)
        self._summarise(operation, record)
        operation.commit()

    def _row_delta(self, transaction: Any, files: Files, written: Written, specs: Any) -> Any:
        delta = transaction.newRowDelta()
        if files.snapshot is not None:
            delta.validateFromSnapshot(files.snapshot)
        for file in written.data:
            delta.addRows(self._java.content_file(file.json, specs))
        for vector in self._java.delete_files([vector.json for vector in written.vectors], specs):
            delta.addDeletes(vector)
        for vector in self._java.delete_files([vector.json for vector in written.replaced], specs):
            delta.removeDeletes(vector)
        for path in written.emptied:
            delta.removeRows(self._java.content_file(data_file_json(files.live[path]), specs))
        paths = [vector.referenced for vector in written.vectors]
        if paths:
            delta.validateDataFilesExist(self._java.list_from(paths))
        delta.validateDeletedFiles()
        return delta

    @staticmethod
    def _summarise(operation: Any, record: Record) -> None:
        for name, value in record.summary().items():
            operation.set(name, value)


def removed_files(planned: Files, written: Written) -> list[str]:
    """Descriptions of the data files and vectors that `written` takes out of the table."""
    emptied = [data_file_json(planned.live[path]) for path in written.emptied]
    return [*emptied, *(vector.json for vector in written.replaced)]


def data_file_json(file: LiveFile) -> str:
    """Enough of a data file to take it out of the table."""
    return json.dumps(
        {
            "spec-id": file.spec_id,
            "content": "data",
            "file-path": file.path,
            "file-format": "parquet",
            "partition": json.loads(file.partition_json),
            "file-size-in-bytes": file.size,
            "record-count": file.records,
        }
    )
