"""The promises of a store: where a pipeline keeps what must outlive it.

One instance belongs to one pipeline id and neither sees nor touches what another keeps in the same place. Methods may
be called from any thread. A write is atomic, and durable when it returns. If it raises, nothing changed; only after
StoreIoError it may have happened, and every method but `rollback_table_state` may be called again. A read sees every
write that returned before it, whichever instance made it. What the medium does is raised as StoreError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from ..errors import StoreFenced
from ..lsn import Lsn
from ..schema import ReplicatedTableSchema
from ..schema_policy import Target
from ..table_state import TableState
from .copies import CopyStore
from .records import DestinationTableMetadata, Heartbeat, SchemaVersion, StateEntry, Worker
from .requests import RequestStore

__all__ = ["HISTORY_KEPT", "LeasedStore", "PipelineStore", "SchemaStore", "StateStore", "TableStateLifecycleStore"]

HISTORY_KEPT = 100
"""How many states of a table a store keeps at least, the newest. Older ones may go: a table can fail every minute."""


class SchemaStore(Protocol):
    """Versions of table schemas, each in force from its snapshot LSN until the next."""

    def store_table_schema(self, schema: ReplicatedTableSchema, since: Lsn, target: Target | None = None) -> None:
        """Keep a version, and what the destination makes of it if that is another; replaces one of the same LSN."""

    def get_table_schema(self, table_id: int, at: Lsn) -> SchemaVersion | None:
        """The version in force at an LSN: the one with the largest snapshot LSN that is not above it."""

    def get_table_schemas(self) -> Sequence[SchemaVersion]:
        """All versions of all tables, by table and LSN."""

    def prune_table_schemas(self, needed_from: Mapping[int, Lsn]) -> int:
        """Forget, per table named, the versions before the one in force at the LSN; returns how many went."""


class StateStore(Protocol):
    """Table states, progress, and what stands at the destination."""

    def get_table_state(self, table_id: int) -> TableState | None:
        """The current state; None for a table never heard of."""

    def get_table_states(self) -> Mapping[int, TableState]: ...

    def get_table_state_history(self, table_id: int) -> Sequence[StateEntry]:
        """The states a table went through, oldest first; the last one is current."""

    def update_table_states(self, updates: Mapping[int, TableState]) -> None:
        """Move tables, all or none; see `moves.is_move`. A table starts with Init; the state it has is no move."""

    def rollback_table_state(self, table_id: int) -> TableState:
        """Take the last move back, out of the history too. Raises RollbackImpossible at Init and without a past."""

    def rollback_table_state_to_init(self, table_id: int) -> None:
        """Start the table over: its state becomes Init, nothing else changes. Raises RollbackImpossible if unknown."""

    def get_progress(self, worker: Worker) -> Lsn | None:
        """The LSN up to which everything of the worker is durable at the destination."""

    def get_all_progress(self) -> Mapping[Worker, Lsn]: ...

    def update_progress(self, worker: Worker, lsn: Lsn) -> Lsn:
        """Move progress forward; a lower LSN than the stored one is ignored. Returns what is stored afterwards."""

    def delete_progress(self, *workers: Worker) -> None:
        """Forget progress: of a slot that is gone, of tables in step. The next `update_progress` may be lower."""

    def get_destination_metadata(self, table_id: int) -> DestinationTableMetadata | None: ...

    def get_all_destination_metadata(self) -> Mapping[int, DestinationTableMetadata]: ...

    def store_destination_metadata(self, table_id: int, metadata: DestinationTableMetadata) -> None:
        """Replace what is known of the destination's table: Applying before it is altered, Applied afterwards."""

    def store_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Replace the pipeline's last report about itself."""

    def get_heartbeat(self) -> Heartbeat | None:
        """Return the pipeline's last report about itself; None if it never made one."""

    def store_first_system_id(self, system_id: str, first: str) -> None:
        """Keep the identifier that a cluster had when the pipeline was begun, before pg_upgrade gave it another."""

    def get_first_system_id(self, system_id: str) -> str | None:
        """Return what `store_first_system_id` kept for a cluster; None if it was not upgraded."""

    def acknowledge(self, applied: Mapping[int, Lsn]) -> None:
        """Keep, per table, the LSN that the destination last recorded; it replaces the one before, also if lower."""

    def get_acknowledged(self) -> Mapping[int, Lsn]:
        """What `acknowledge` kept, by table: a destination that has less was put back to an earlier state."""


class TableStateLifecycleStore(Protocol):
    """Operations across everything kept for a table. Each may be repeated."""

    def prepare_for_copy(self, table_id: int) -> None:
        """Forget schemas, progress, what was acknowledged, and copy of a table whose destination was dropped.

        Its state and metadata stay.

        The metadata has the name under which the table was first known. Nobody else has, should the copy never begin.
        """

    def reset_for_resync(self) -> int:
        """All tables to Init and apply's progress gone, everything else kept; returns how many tables moved."""

    def delete_table(self, table_id: int) -> None:
        """Forget all of a table that left the publication, its history too. The destination is not touched."""


class PipelineStore(SchemaStore, StateStore, CopyStore, RequestStore, TableStateLifecycleStore, Protocol):
    """What a pipeline needs. Code that needs less asks for less."""

    def close(self) -> None:
        """Let go of files and connections; may be repeated."""


@runtime_checkable
class LeasedStore(Protocol):
    """A store that several machines can reach, and that only one run of a pipeline writes to at a time.

    A store that has a lease refuses, with StoreFenced and within the transaction of the write, whatever it would write
    after another has taken the lease over. One that never took a lease is not bound by it: that is how commands leave
    requests for a running pipeline.
    """

    def take_lease(self, on_lost: Callable[[StoreFenced], None]) -> None:
        """Take the lease if it is free or has expired. Do nothing if this store already holds it.

        `on_lost` is called, from any thread, when a write is refused for the first time. Raises StoreInUse, which names
        the holder.
        """

    def renew_lease(self) -> None:
        """Let the lease expire later. Raises StoreFenced if another has taken it over."""

    def release_lease(self) -> None:
        """Give the lease up, if this store has one. May be repeated."""
