"""The destination's tables, by the OID of their source: found, created, renamed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import structlog

from ...config.table_destination import OnTableRename, TableDestinationConfig
from ...errors import DestinationConflict, DestinationError, DestinationRejected, PipelineStateError
from ...lsn import Lsn
from ...schema import ReplicatedTableSchema, TableName
from ..contract import DestinationContext
from ..names import destination_names
from ..table_plans import check_columns, check_named, former_names, told_apart
from .contract import LakeCatalog, LakeTable, Wrapping
from .evolution.column_record import COLUMNS
from .fence import Fence
from .files import Written
from .java_errors import TableGone
from .plan import TablePlan
from .record import COPY_AGAIN, PIPELINE, TABLE_ID, Record

__all__ = ["Held", "HeldTables", "MakePlans"]

MakePlans = Callable[[Iterable[TableName], Mapping[TableName, Sequence[str]]], dict[TableName, TablePlan]]

_PATIENCE_S = 10.0
"""Seconds that a table waits for the commit of another that has to leave its name."""

_log = structlog.get_logger("headrace.destinations")


@dataclass(slots=True, eq=False)
class Held:
    """A table, once it was looked for. Its lock is held while events are written, and for each commit."""

    source: TableName
    plan: TablePlan
    lock: threading.RLock = field(default_factory=threading.RLock)
    table: LakeTable | None = None
    copying: bool = False
    recorded: Lsn | None = None
    """The LSN of the last commit of this run."""

    def require_not_put_back(self, record: Record) -> None:
        """Raise DestinationError if the table is in a state of before this run's last commit: rolled back or restored.

        Once: whoever goes on has asked for the record, and begins where that says.
        """
        expected, self.recorded = self.recorded, None
        if expected is not None and (record.lsn is None or record.lsn < expected):
            found = "no record" if record.lsn is None else f"the record {record.lsn}"
            msg = f"the table {self.text} was put back to an earlier state: it has {found}, and had {expected}"
            raise DestinationError(msg, hint="nothing to do: the table is caught up, or copied again")
        self.recorded = expected

    @property
    def name(self) -> tuple[str, ...]:
        return self.plan.name

    @property
    def text(self) -> str:
        return ".".join(self.plan.name)


class HeldTables:
    """All tables of a pipeline. Methods that take a `Held` are called under its lock."""

    def __init__(self, settings: TableDestinationConfig, context: DestinationContext, make_plans: MakePlans) -> None:
        self._settings, self._context, self._make_plans = settings, context, make_plans
        self._lock = threading.Lock()
        self._formerly = former_names(context.store, context.tables)
        check_named(settings, self._formerly.keys(), self._formerly)
        tables = told_apart(settings, context, self._formerly)
        plans = make_plans([schema.table.name for schema in tables], self._formerly)
        for schema in tables:
            check_columns(schema, plans[schema.table.name].mode)
        self._held = {schema.table.id: _held(schema, plans) for schema in tables}
        self._elsewhere: dict[int, tuple[str, ...]] | None = None
        self._catalog: LakeCatalog | None = None
        self._fence = Fence(context.pipeline_id)

    def open(self, catalog: LakeCatalog, fence: Fence) -> None:
        self._catalog, self._fence = catalog, fence

    def claimed(self) -> None:
        """Forget tables that were found before the epoch of this run was known: their files would be named wrongly."""
        for held in self.all():
            with held.lock:
                held.table = None

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._held.values())

    def named(self, source: TableName) -> Held:
        for held in self.all():
            if held.source == source:
                return held
        msg = f"table {source} is not known"
        raise PipelineStateError(msg)

    def of(self, schema: ReplicatedTableSchema) -> Held:
        with self._lock:
            if schema.table.id not in self._held:
                sources = [held.source for held in self._held.values()]
                plans = self._make_plans({*sources, schema.table.name}, self._formerly)
                self._held[schema.table.id] = _held(schema, plans)
            return self._held[schema.table.id]

    def found(self, held: Held, schema: ReplicatedTableSchema) -> LakeTable | None:
        """The table as it is now; None if there is none. Raises if one that is not ours has its name."""
        if held.table is not None:
            try:
                held.table.refresh()
                if held.table.is_as_laid_out():
                    return held.table
            except TableGone:
                pass
            held.table = None
        table = self._loaded(held, schema)
        if table is None and self._context.store.get_destination_metadata(schema.table.id) is not None:
            table = self._found_elsewhere(held, schema)
        held.table = table
        return table

    def created(self, held: Held, schema: ReplicatedTableSchema, rows: pa.Schema) -> LakeTable:
        """A new table; or that of a source table that is no more, and whose rows the copy replaces."""
        taken = self._wrapped(held, schema)
        if taken is None:
            new = held.plan.new_table(schema, rows, self._context.pipeline_id)
            held.table = self._wrap(held, schema, self._opened.create(new))
            # Iceberg gives ids of its own, within structs in an order of its own.
            columns = held.plan.columns(json.loads(held.table.layout.schema_json), schema)
            if new.properties.get(COLUMNS) != columns:
                held.table.set_property(COLUMNS, columns)
            return held.table
        owner = taken.properties().get(TABLE_ID)
        if self._is_ours(owner):
            other = self._held.get(int(owner or 0))
            if other is None or other.source == held.source:
                # Perhaps dropped at the source: then it leaves, and the new copy takes its place.
                msg = f"the table {held.text} still belongs to another table of the source"
                raise DestinationConflict(msg)
            self._move_away(int(owner or 0), held.plan.name, held)
            return self.created(held, schema, rows)
        taken.add(Written(), {COPY_AGAIN: "true"})
        held.table = taken
        return taken

    def drop(self, held: Held) -> None:
        if held.table is not None:
            # Dropping is not conditional: what can be known before it is.
            self._fence.admit(held.table.properties(), held.text)
        self._opened.drop(held.plan.name)
        held.table = None

    def forget(self, schema: ReplicatedTableSchema) -> None:
        """The source left: should it come again, it is looked for anew."""
        with self._lock:
            held = self._held.pop(schema.table.id, None)
            if held is not None:
                self._formerly.pop(held.source, None)

    def follow_name(self, held: Held, sources: Sequence[TableName]) -> None:
        """Rename the table, if there is one, as its source was, name by name: the next may still be another table's."""
        names = [self._name(held, source) for source in sources]
        if held.name not in names[-1:]:
            done = names.index(held.name) + 1 if held.name in names else 0
            exists = held.table is not None
            for source, name in list(zip(sources, names, strict=True))[done:]:
                self._rename(held, source, name, exists=exists)
        for source in sources:
            with self._lock:
                if source != held.source:
                    self._formerly[source] = [*self._formerly.pop(held.source, ()), str(held.source)]
                    held.source = source

    def _name(self, held: Held, source: TableName) -> tuple[str, ...]:
        settings = self._settings
        if held.plan.has_own_name or settings.on_table_rename is OnTableRename.KEEP:
            return held.name
        return destination_names([source], settings.namespace, settings.table_name, {})[source]

    def _rename(self, held: Held, source: TableName, name: tuple[str, ...], *, exists: bool) -> None:
        if name != held.name:
            if exists:
                self._make_free(name, source, held)
                self._opened.rename(held.name, name)
                _log.info("table renamed", table=held.text, name=".".join(name))
            held.table, held.plan = None, replace(held.plan, name=name)

    def _make_free(self, name: tuple[str, ...], source: TableName, held: Held) -> None:
        """Raise if the name is taken by a table that will not leave it; move one that must leave it out of the way."""
        found = self._opened.load(name)
        if found is None:
            return
        text = ".".join(name)
        properties = self._opened.properties(found, name)
        if properties.get(PIPELINE) == str(self._context.pipeline_id) and self._is_ours(properties.get(TABLE_ID)):
            self._move_away(int(properties[TABLE_ID]), name, held, source)
            return
        hint = f'drop or rename {text}, or give another name with destination.tables."{source}".name'
        raise DestinationRejected(f"table {source} was renamed, and there is a table {text} already", hint=hint)

    def _is_ours(self, table_id: str | None) -> bool:
        """Whether a source table is still in the pipeline."""
        return table_id is not None and self._context.store.get_table_state(int(table_id)) is not None

    def _move_away(self, table_id: int, name: tuple[str, ...], held: Held, source: TableName | None = None) -> None:
        """Give another table of ours, whose source has left this name too, a name of its own until it follows.

        Tables that exchange their names would wait for each other otherwise: nobody tells of all renames at once.
        Raises DestinationConflict while the other table is being written, DestinationRejected if it keeps the name.
        """
        source = source or held.source
        with self._lock:
            other = self._held.get(table_id)
        if other is None:
            self._opened.rename(name, _parked(name, table_id))
            return
        stays = other.plan.has_own_name or other.source != source
        if stays and self._name(other, other.source) == name:
            msg = f"tables {other.source} and {source} have the same name at the destination: {'.'.join(name)}"
            hint = f'give one another name, for example destination.tables."{source}".name, or change the patterns'
            raise DestinationRejected(msg, hint=hint)
        # One of two that want each other's name waits for the other, and never both.
        if not other.lock.acquire(timeout=_PATIENCE_S if id(held) < id(other) else 0):
            msg = f"the table {'.'.join(name)} is being written, and has to leave its name first"
            raise DestinationConflict(msg)
        try:
            parked = _parked(name, table_id)
            self._opened.rename(name, parked)
            other.table, other.plan = None, replace(other.plan, name=parked)
            _log.info("table moved out of the way", table=".".join(name), name=".".join(parked), source=str(source))
        finally:
            other.lock.release()

    def _loaded(self, held: Held, schema: ReplicatedTableSchema) -> LakeTable | None:
        table = self._wrapped(held, schema)
        # Tables of earlier versions do not tell.
        if table is None or table.properties().get(TABLE_ID, str(schema.table.id)) != str(schema.table.id):
            return None
        return table

    def _wrapped(self, held: Held, schema: ReplicatedTableSchema) -> LakeTable | None:
        """Whatever has the name. Raises if this pipeline did not make it."""
        loaded = self._opened.load(held.plan.name)
        if loaded is None:
            return None
        owner = Record.read(self._opened.properties(loaded, held.plan.name), None).pipeline_id
        if owner != self._context.pipeline_id:
            whose = "was not made by Headrace" if owner is None else f"belongs to pipeline {owner}"
            msg = f"the table {held.text} exists and {whose}"
            remedy = f'drop it, or give another name with destination.tables."{schema.table.name}".name'
            raise DestinationRejected(msg, hint=remedy)
        return self._wrap(held, schema, loaded)

    def _wrap(self, held: Held, schema: ReplicatedTableSchema, found: object) -> LakeTable:
        wrapping = Wrapping(held.plan, held.plan.key(schema), self._fence, schema.table.id)
        return self._opened.wrapped(found, wrapping)

    def _found_elsewhere(self, held: Held, schema: ReplicatedTableSchema) -> LakeTable | None:
        """Under another name: the source was renamed while nobody looked, or the table keeps its name."""
        with self._lock:
            if self._elsewhere is None:
                self._elsewhere = self._names_by_id()
            name = self._elsewhere.get(schema.table.id)
        if name is None or name == held.plan.name:
            return None
        wanted = held.plan.name
        if name == _parked(name, schema.table.id) and self._opened.load(wanted) is None:
            # It was moved out of another's way, and its own name is free by now.
            self._opened.rename(name, wanted)
            return self._loaded(held, schema)
        held.plan = replace(held.plan, name=name)
        return self._loaded(held, schema)

    def _names_by_id(self) -> dict[int, tuple[str, ...]]:
        """Of all tables that this pipeline made. Dear, so asked for once."""
        catalog, names = self._opened, {}
        for name in catalog.names():
            try:
                table = catalog.load(name)
            except DestinationError as error:
                # A table that cannot be read, of whomever it is, must not stop those that can.
                _log.warning("a table of the catalog cannot be read", table=".".join(name), error=str(error))
                continue
            if table is None:
                continue
            properties = catalog.properties(table, name)
            if properties.get(PIPELINE) == str(self._context.pipeline_id) and TABLE_ID in properties:
                names[int(properties[TABLE_ID])] = name
        return names

    @property
    def _opened(self) -> LakeCatalog:
        if self._catalog is None:
            msg = "the destination is not open"
            raise PipelineStateError(msg)
        return self._catalog


def _parked(name: tuple[str, ...], table_id: int) -> tuple[str, ...]:
    """The name of a table that is out of the way of another; the same for the result."""
    mark = f"__headrace_{table_id}"
    return (*name[:-1], name[-1].removesuffix(mark) + mark)


def _held(schema: ReplicatedTableSchema, plans: dict[TableName, TablePlan]) -> Held:
    return Held(schema.table.name, plans[schema.table.name])
