-- An LSN is text of 16 hexadecimal digits: it sorts as the number does, and all 64 bits fit.

CREATE TABLE table_state (
    pipeline_id INTEGER NOT NULL,
    table_id    INTEGER NOT NULL,
    step        INTEGER NOT NULL,
    state       TEXT NOT NULL
        CHECK (state IN ('init', 'data_sync', 'finished_copy', 'sync_done', 'ready', 'errored')),
    detail      TEXT NOT NULL,
    entered_at  TEXT NOT NULL,
    PRIMARY KEY (pipeline_id, table_id, step)
) WITHOUT ROWID;

CREATE TABLE table_schema (
    pipeline_id  INTEGER NOT NULL,
    table_id     INTEGER NOT NULL,
    snapshot_lsn TEXT NOT NULL CHECK (length(snapshot_lsn) = 16),
    definition   TEXT NOT NULL,
    PRIMARY KEY (pipeline_id, table_id, snapshot_lsn)
);

-- table_id 0 is the apply loop.
CREATE TABLE progress (
    pipeline_id INTEGER NOT NULL,
    table_id    INTEGER NOT NULL,
    lsn         TEXT NOT NULL CHECK (length(lsn) = 16),
    PRIMARY KEY (pipeline_id, table_id)
) WITHOUT ROWID;

CREATE TABLE destination_table (
    pipeline_id           INTEGER NOT NULL,
    table_id              INTEGER NOT NULL,
    destination_table_id  TEXT NOT NULL,
    snapshot_lsn          TEXT NOT NULL CHECK (length(snapshot_lsn) = 16),
    previous_snapshot_lsn TEXT CHECK (length(previous_snapshot_lsn) = 16),
    status                TEXT NOT NULL CHECK (status IN ('applying', 'applied')),
    mask                  TEXT NOT NULL,
    PRIMARY KEY (pipeline_id, table_id)
) WITHOUT ROWID;
