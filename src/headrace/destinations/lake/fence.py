"""Fencing: only the newest run of a pipeline writes to its tables.

A small table of the catalog, `headrace.pipeline_<id>`, hands out epochs by compare-and-set, and is read again before
every write. Between that look and the commit another run may claim the pipeline; so a run also writes its epoch to a
table with its first commit there, refuses to write where a later epoch stands, and a commit holds only on top of the
very state of the table that it was planned on.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import DestinationConflict, DestinationError, DestinationFenced, DestinationRejected
from ..contract import DestinationContext, SourceIdentity
from .contract import LakeCatalog, LakeTable, NewTable, Wrapping
from .files import Written
from .java_errors import CommitStateUnknown, TableGone
from .plan import TablePlan
from .record import PIPELINE

__all__ = ["EPOCH", "Fence", "PipelineRecord", "is_of_earlier_run"]

EPOCH = "headrace.epoch"
_RUN = "headrace.run-id"
_SYSTEM = "headrace.source-system-id"
_DATABASE = "headrace.source-database"
_TRIES = 20
_FILE = re.compile(r"headrace-(\d+)-e(\d+)x([0-9a-f]+)-")


@dataclass(slots=True, eq=False)
class Fence:
    """The epoch of this run, shared by all its tables. 0: nothing was claimed."""

    pipeline_id: int
    epoch: int = 0
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def file_prefix(self) -> str:
        """How the names of this run's files begin."""
        return f"headrace-{self.pipeline_id}-e{self.epoch}x{self.run}-"

    def admit(self, properties: Mapping[str, str], table: str) -> dict[str, str]:
        """Return the properties that a commit must set to mark a table as this run's.

        Raises DestinationFenced if a later run has written to the table.
        """
        found = _epoch(properties)
        if found > self.epoch:
            msg = f"another run of pipeline {self.pipeline_id} has taken over table {table}"
            raise DestinationFenced(msg, detail=f"its epoch is {found}, this run has {self.epoch}")
        return {} if found == self.epoch else {EPOCH: str(self.epoch)}

    def has_marked(self, properties: Mapping[str, str]) -> bool:
        """Return whether a table carries the epoch of this run, so that commits of earlier runs to it are refused."""
        return self.epoch > 0 and _epoch(properties) == self.epoch


def is_of_earlier_run(name: str, file_prefix: str) -> bool:
    """Whether a file of this name was written by a run with a lower epoch than the one whose prefix is given.

    Names of earlier versions of Headrace have no epoch: nobody knows whose they are.
    """
    file, own = _FILE.match(name), _FILE.match(file_prefix)
    if file is None or own is None or file[1] != own[1] or file[3] == own[3]:
        return False
    return int(file[2]) < int(own[2])


class PipelineRecord:
    """The table that says which run of a pipeline, from which source, may write to a catalog's tables."""

    def __init__(self, catalog: LakeCatalog, plan: TablePlan, fence: Fence) -> None:
        self._catalog, self._plan, self._fence = catalog, plan, fence
        self._lock = threading.Lock()
        self._table: LakeTable | None = None
        """As claimed; used with the lock only."""

    def check(self) -> None:
        """Raise DestinationFenced if a later run has claimed the pipeline. Pass before this run has claimed it."""
        with self._lock:
            if self._table is None:
                return
            try:
                self._table.refresh()
            except TableGone:
                msg = f"the table {'.'.join(self._plan.name)} was dropped, which says what run may write"
                raise DestinationError(msg, hint="start the pipeline again: it makes the table anew") from None
            properties = self._table.properties()
        found = _epoch(properties)
        if found > self._fence.epoch:
            msg = f"another run of pipeline {self._fence.pipeline_id} has taken over this destination"
            run = properties.get(_RUN, "").rpartition("/")[0] or "unknown"
            raise DestinationFenced(msg, detail=f"its epoch is {found} ({run}), this run has {self._fence.epoch}")

    def claim(self, context: DestinationContext) -> None:
        """Raise the epoch by one, and take it. Raises DestinationRejected if another source owns the record."""
        for _ in range(_TRIES):
            try:
                if self._try_to_claim(context):
                    return
            except CommitStateUnknown:
                # The next look at the record tells.
                continue
            except DestinationConflict:
                # Another run did the same at this moment.
                continue
        msg = f"pipeline {context.pipeline_id} cannot be claimed: other runs claim it all the time"
        raise DestinationConflict(msg)

    def _try_to_claim(self, context: DestinationContext) -> bool:
        found = self._catalog.load(self._plan.name)
        if found is None:
            found = self._catalog.create(self._new_table())
        table: LakeTable = self._catalog.wrapped(found, Wrapping(self._plan, (), self._fence))
        properties = table.properties()
        self._check_source(properties, context)
        run = f"{context.run_id}/{self._fence.run}"
        self._table = table
        if properties.get(_RUN) == run:
            self._fence.epoch = _epoch(properties)
            return True
        # A record that was dropped is made again, and the tables still have the epochs of earlier runs. The time in
        # milliseconds is above all of these, since epochs begin with it and rise by one.
        self._fence.epoch = _epoch(properties) + 1 if EPOCH in properties else time.time_ns() // 1_000_000
        source = context.source
        told = {} if source is None else {_SYSTEM: source.system_id, _DATABASE: source.database}
        table.add(Written(), {EPOCH: str(self._fence.epoch), _RUN: run, **told})
        return True

    def _check_source(self, properties: Mapping[str, str], context: DestinationContext) -> None:
        if properties.get(PIPELINE) != str(self._fence.pipeline_id):
            msg = f"the table {'.'.join(self._plan.name)} exists and was not made by this pipeline"
            raise DestinationRejected(msg, hint="drop it, or rename it")
        if _SYSTEM not in properties:
            return
        before = SourceIdentity(properties[_SYSTEM], properties.get(_DATABASE, ""))
        if context.source not in (None, before):
            msg = f"pipeline {self._fence.pipeline_id} at this catalog belongs to {before}, not to {context.source}"
            hint = f"give one of the two pipelines another id, or drop the table {'.'.join(self._plan.name)}"
            raise DestinationRejected(msg, hint=hint)
        context.check_owner(str(before))

    def _new_table(self) -> NewTable:
        return NewTable(
            self._plan.name,
            {
                "type": "struct",
                "schema-id": 0,
                "fields": [{"id": 1, "name": "epoch", "required": False, "type": "long"}],
            },
            {"spec-id": 0, "fields": []},
            {"order-id": 0, "fields": []},
            {**self._plan.defaults, PIPELINE: str(self._fence.pipeline_id)},
        )


def _epoch(properties: Mapping[str, str]) -> int:
    text = properties.get(EPOCH, "0")
    return int(text) if text.isdigit() else 0
