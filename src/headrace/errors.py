"""Every error Headrace raises, in one tree. Each knows what the operator should do and whether trying again helps.

    HeadraceError
    |- ConfigError                      a setting is wrong
    |- IllegalTransition                a bug: a table was asked to make a move its state does not allow
    |- ProtocolError                    bytes that are not pgoutput
    |- UnrepresentableValue             a value its Arrow type cannot hold, with on_unrepresentable: error
    |  |- UnrepresentableKey            the same in a column of a key, whatever the setting
    |- SourceError                      Postgres, or the way to it
    |  |- SourceConnectionFailed        (timed) unreachable, dropped, out of connections
    |  |- SourceShutdown                (timed) the server is going down
    |  |- SourceInRecovery              (timed) the server is starting up or is a standby that cannot do this yet
    |  |- SourceAuthenticationFailed
    |  |- SourcePermissionDenied
    |  |- SourceQueryFailed
    |  |- SourceSchemaError             a table, column, function, schema or database is not there
    |  |- SourceDataError               Postgres rejected a value or a constraint
    |  |- SourceConflict                (timed) serialization failure, deadlock, object in use
    |  |- SourceLockTimeout             (timed)
    |  |- SourceCanceled                (timed) statement canceled
    |  |- SourceIoError                 disk full or failing on the server
    |  |- SourceLimitExceeded           a server setting is too low
    |  |- SourceSnapshotTooOld
    |  |- SourceUnsupported             this server version cannot do what is asked
    |  |- SourceWentBack                the server lacks changes that were read from it: restored, or failed over
    |  |- PublicationNotFound
    |  |- SlotError
    |     |- SlotNotFound
    |     |- SlotAlreadyExists
    |     |- SlotInUse                  (timed) another process reads it
    |     |- SlotInvalidated            WAL it needs is gone
    |     |- SlotUndecodable            the server itself fails at a transaction or a row, each time
    |     |- SlotDropTimeout
    |- SpoolError
    |  |- SpoolGap                      changes are missing between the spool and the slot
    |  |- SpoolCorrupt                  a segment is damaged or cannot be read
    |  |- SpoolInUse                    (timed) another receiver writes to it
    |  |- SpoolIoError                  (timed) the spool's place cannot be written or read
    |- StoreError                       where table states, schemas and progress are kept
    |  |- StoreVersionError             a newer version of headrace wrote it
    |  |- StoreCorrupt                  it is no store of headrace, or cannot be read
    |  |- StoreIoError                  (timed) it cannot be written or read
    |  |- StoreInUse                    (timed) another run of the pipeline holds its lease
    |  |- StoreFenced                   another run of the pipeline has taken its lease over
    |  |- RollbackImpossible            a table has no earlier state to go back to
    |- DestinationError                 (timed) where rows and events go
    |  |- DestinationConnectionFailed   (timed) unreachable, dropped, out of connections
    |  |- DestinationTimeout            (timed)
    |  |- DestinationConflict           (timed) someone else wrote to the same table
    |  |- DestinationFenced             another run of the pipeline has taken the destination over
    |  |- DestinationRejected           it does not take what was written: a type, a name, a privilege
    |- SparkError                       (timed) the engine that runs the tasks
    |  |- SparkGone                     (timed) Spark's Java process has ended while the pipeline ran
    |  |- SparkUnavailable              no Spark session can be had: no Java, a wrong version, a wrong setting
    |- PipelineError
       |- PipelineStateError            a pipeline was asked for something its state does not allow
       |- TableSchemaChanged            a table changed in a way that its rows cannot follow: it is copied again
       |- SchemaChangeRefused           a table changed in a way that the policy does not allow
       |- KeyRangesOvertaken            (timed) changes moved rows between ranges that were copied at different times
       |- TableNotFound                 no table of the pipeline has this name

Messages are lower case and factual; `detail` holds what the other side said; `hint` what to do. No error ever carries
a row value or a password. All of them pickle, so that they cross process boundaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar

__all__ = [
    "ConfigError", "DestinationConflict", "DestinationConnectionFailed", "DestinationError", "DestinationFenced",
    "DestinationRejected", "DestinationTimeout", "HeadraceError", "IllegalTransition", "KeyRangesOvertaken",
    "PipelineError", "PipelineStateError", "ProtocolError", "PublicationNotFound", "RetryPolicy", "RollbackImpossible",
    "SchemaChangeRefused", "SlotAlreadyExists", "SlotDropTimeout", "SlotError", "SlotInUse", "SlotInvalidated",
    "SlotNotFound", "SlotUndecodable", "SourceAuthenticationFailed", "SourceCanceled", "SourceConflict",
    "SourceConnectionFailed", "SourceDataError", "SourceError", "SourceInRecovery", "SourceIoError",
    "SourceLimitExceeded", "SourceLockTimeout", "SourcePermissionDenied", "SourceQueryFailed", "SourceSchemaError",
    "SourceShutdown", "SourceSnapshotTooOld", "SourceUnsupported", "SourceWentBack", "SparkError", "SparkGone",
    "SparkUnavailable", "SpoolCorrupt", "SpoolError", "SpoolGap", "SpoolInUse", "SpoolIoError", "StoreCorrupt",
    "StoreError", "StoreFenced", "StoreInUse", "StoreIoError", "StoreVersionError", "TableNotFound",
    "TableSchemaChanged", "UnrepresentableKey", "UnrepresentableValue",
]  # fmt: skip


class RetryPolicy(StrEnum):
    """Whether trying again helps: by itself after a while, after the operator acted, or never."""

    TIMED = "timed"
    MANUAL = "manual"
    NONE = "none"


class HeadraceError(Exception):
    """The root. `kind` is a stable name for metrics and stores; `retry` and `hint` have a default per class."""

    retry: RetryPolicy = RetryPolicy.MANUAL
    hint: str = "look at the detail, mend the cause and start again"
    kind: ClassVar[str] = "error"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        name = cls.__name__.removesuffix("Error") or cls.__name__
        cls.kind = "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")

    def __init__(
        self, message: str, *, detail: str | None = None, hint: str | None = None, retry: RetryPolicy | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        if hint is not None:
            self.hint = hint
        if retry is not None:
            self.retry = retry

    def __str__(self) -> str:
        return f"{self.message}: {self.detail}" if self.detail else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Rebuilt without __init__: subclasses may take other arguments, and causes may hold what cannot be pickled.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(cls: type[HeadraceError], args: tuple[Any, ...], state: dict[str, Any]) -> HeadraceError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigError(HeadraceError):
    """A setting is missing, unknown or contradicts another."""

    hint = "correct the setting named in the message"


class IllegalTransition(HeadraceError):
    """A table was asked to make a move that `table_state.TRANSITIONS` does not have."""

    retry = RetryPolicy.NONE
    hint = "this is a bug in headrace; please report it with the log around it"

    def __init__(self, current: str, to: str) -> None:
        super().__init__(f"a table cannot go from {current} to {to}")
        self.current = current
        self.to = to


class ProtocolError(HeadraceError):
    """Bytes that are not what pgoutput sends."""

    retry = RetryPolicy.NONE
    hint = "keep the spool as it is: it shows what was received; then report this with the server's version"


class UnrepresentableValue(HeadraceError):
    """A value that its Arrow type cannot hold, met while `on_unrepresentable` is `error`."""

    hint = "set on_unrepresentable to quarantine, or change the column"


class UnrepresentableKey(UnrepresentableValue):
    """A column of a key has a value that its Arrow type cannot hold: rows could not be told apart by it.

    `table_id` and `columns` (names) say where. A table that can be copied again is, with these columns as text.
    """

    hint = "copy the table again with these columns as text: headrace resync PIPELINE.YAML TABLE"

    def __init__(self, message: str, *, table_id: int | None = None, columns: Sequence[str] = (), **rest: Any) -> None:
        super().__init__(message, **rest)
        self.table_id = table_id
        self.columns = list(columns)


class SourceError(HeadraceError):
    """Something Postgres said, or the connection to it did. `sqlstate` is None when no server answered."""

    hint = "look at the server's log around this time"

    def __init__(self, message: str, *, sqlstate: str | None = None, **rest: Any) -> None:
        super().__init__(message, **rest)
        self.sqlstate = sqlstate


class SourceConnectionFailed(SourceError):
    retry = RetryPolicy.TIMED
    hint = "check that the server runs, accepts connections from here, and has connections left"


class SourceShutdown(SourceError):
    retry = RetryPolicy.TIMED
    hint = "wait until the server is up again"


class SourceInRecovery(SourceError):
    retry = RetryPolicy.TIMED
    hint = "wait until the server has started up; a standby can only be a source from Postgres 16 on"


class SourceAuthenticationFailed(SourceError):
    hint = "check user, password, database and pg_hba.conf"


class SourcePermissionDenied(SourceError):
    hint = "grant the role the privilege named in the detail"


class SourceQueryFailed(SourceError): ...


class SourceSchemaError(SourceError):
    hint = "check that the table, column or schema named in the detail still exists"


class SourceDataError(SourceError): ...


class SourceConflict(SourceError):
    retry = RetryPolicy.TIMED
    hint = "nothing to do if it passes by itself; otherwise look for what holds the object named in the detail"


class SourceLockTimeout(SourceError):
    retry = RetryPolicy.TIMED
    hint = "look in pg_locks for what holds the lock"


class SourceCanceled(SourceError):
    retry = RetryPolicy.TIMED
    hint = "raise statement_timeout for this role, or see who canceled the statement"


class SourceIoError(SourceError):
    hint = "the server's disk is full or failing: mend that first"


class SourceLimitExceeded(SourceError):
    hint = "raise the server setting named in the detail"


class SourceSnapshotTooOld(SourceError):
    hint = "copy the table again: headrace resync PIPELINE.YAML TABLE"


class SourceUnsupported(SourceError):
    retry = RetryPolicy.NONE
    hint = "use a newer Postgres, or leave the feature off"


class SourceWentBack(SourceError):
    hint = (
        "connect to the server that has these changes if it still exists; otherwise set invalidated_slot_behavior to "
        "recreate, which makes a new slot and copies all tables again"
    )


class PublicationNotFound(SourceError):
    hint = "create it: CREATE PUBLICATION … FOR TABLE …"


class SlotError(SourceError): ...


class SlotNotFound(SlotError):
    hint = (
        "changes since the slot was dropped are lost to it: set invalidated_slot_behavior to recreate, which makes a "
        "new slot and copies all tables again"
    )


class SlotAlreadyExists(SlotError):
    hint = "another pipeline may use it: choose another pipeline id, or drop it with pg_drop_replication_slot"


class SlotInUse(SlotError):
    retry = RetryPolicy.TIMED
    hint = "stop the other reader, or end it with pg_terminate_backend"


class SlotInvalidated(SlotError):
    hint = (
        "WAL the slot needs was removed: set invalidated_slot_behavior to recreate, which makes a new slot and copies "
        "all tables again; raise max_slot_wal_keep_size at the server"
    )


class SlotUndecodable(SlotError):
    hint = (
        "the slot never passes this: set invalidated_slot_behavior to recreate, a new slot and all tables copied again"
    )


class SlotDropTimeout(SlotError):
    retry = RetryPolicy.TIMED
    hint = "something still reads the slot; end it with pg_terminate_backend"


class SpoolError(HeadraceError):
    """The spool between receiver and Spark."""


class SpoolGap(SpoolError):
    hint = (
        "changes are missing for good: set invalidated_slot_behavior to recreate, which empties the spool, makes a new "
        "slot and copies all tables again"
    )


class SpoolCorrupt(SpoolError):
    hint = (
        "put the file back from a backup if there is one; otherwise remove it and set invalidated_slot_behavior to "
        "recreate, which copies all tables again"
    )


class SpoolInUse(SpoolError):
    retry = RetryPolicy.TIMED
    hint = "stop the process that the detail names: this one then goes on by itself"


class SpoolIoError(SpoolError):
    retry = RetryPolicy.TIMED
    hint = "check that the spool's place exists, is writable and has space"


class StoreError(HeadraceError):
    """Where table states, schemas and progress are kept."""


class StoreVersionError(StoreError):
    hint = "run the version of headrace that wrote it, or a newer one"


class StoreCorrupt(StoreError):
    hint = (
        "point the pipeline at its own store, or restore that from a backup; without one, move the file away, with its "
        "-wal and -shm files: the next start makes a new store and copies all tables again"
    )


class StoreIoError(StoreError):
    retry = RetryPolicy.TIMED
    hint = "check that the store's file or database exists, is writable and has space"


class StoreInUse(StoreError):
    retry = RetryPolicy.TIMED
    hint = "stop the other run, or wait: the lease of a run that was killed expires by itself within seconds"


class StoreFenced(StoreError):
    """Another run of the same pipeline holds the lease now. It ends the pipeline, not only a table."""

    retry = RetryPolicy.NONE
    hint = "only one run may write: leave the other one running, or stop it and start this one again"


class RollbackImpossible(StoreError):
    hint = "copy the table again instead: headrace resync PIPELINE.YAML TABLE"


class DestinationError(HeadraceError):
    """Where rows and events go. `table_id` says whose fault it is where a call was for several tables."""

    retry = RetryPolicy.TIMED
    hint = "look at the detail and at the destination's own log"

    def __init__(self, message: str, *, table_id: int | None = None, **rest: Any) -> None:
        super().__init__(message, **rest)
        self.table_id = table_id


class DestinationConnectionFailed(DestinationError):
    hint = "check that the destination runs and can be reached from the driver and the executors"


class DestinationTimeout(DestinationError):
    hint = "see whether the destination is overloaded; smaller batches (batch.max_bytes) may help"


class DestinationConflict(DestinationError):
    hint = "nothing to do if it passes by itself; otherwise see who else writes to the table"


class DestinationFenced(DestinationError):
    """Another run of the same pipeline has claimed the destination. It ends the pipeline, not only a table."""

    retry = RetryPolicy.NONE
    hint = "only one run may write: leave the other one running, or stop it and start this one again"


class DestinationRejected(DestinationError):
    retry = RetryPolicy.MANUAL
    hint = (
        "mend what the detail names at the destination or in the configuration, then: "
        "headrace rollback PIPELINE.YAML TABLE"
    )


class SparkError(HeadraceError):
    """The engine that runs the tasks."""

    retry = RetryPolicy.TIMED
    hint = "look at the log of the Spark driver and of the executor named in the detail"


class SparkGone(SparkError):
    hint = (
        "start the process again, or let a supervisor do it: all tables go on where they stand; "
        "if it happens again, give Java more memory (spark.driver_memory) or look for what ended it"
    )


class SparkUnavailable(SparkError):
    retry = RetryPolicy.MANUAL
    hint = "install Java 17 or 21 and set JAVA_HOME, or correct the spark settings"


class PipelineError(HeadraceError):
    """How a pipeline is used, and what it found."""


class PipelineStateError(PipelineError):
    hint = "a Pipeline object is started once; make a new one to start again"


class TableSchemaChanged(PipelineError):
    hint = "copy the table again with the columns it has now: headrace resync PIPELINE.YAML TABLE"


class SchemaChangeRefused(PipelineError):
    hint = (
        "allow it in schema_changes, restart and run: headrace rollback PIPELINE.YAML TABLE; or copy the table again: "
        "headrace resync PIPELINE.YAML TABLE"
    )


class KeyRangesOvertaken(PipelineError):
    retry = RetryPolicy.TIMED
    hint = "nothing to do: the table is copied again, under one snapshot"


class TableNotFound(PipelineError):
    hint = "give the name as schema.table, as the publication has it"
