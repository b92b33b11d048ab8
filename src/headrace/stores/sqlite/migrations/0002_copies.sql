CREATE TABLE table_copy (
    pipeline_id  INTEGER NOT NULL,
    table_id     INTEGER NOT NULL,
    start_lsn    TEXT NOT NULL CHECK (length(start_lsn) = 16),
    snapshot_lsn TEXT NOT NULL CHECK (length(snapshot_lsn) = 16),
    one_snapshot INTEGER NOT NULL CHECK (one_snapshot IN (0, 1)),
    ranges       TEXT NOT NULL,
    PRIMARY KEY (pipeline_id, table_id)
) WITHOUT ROWID;

CREATE TABLE copied_range (
    pipeline_id INTEGER NOT NULL,
    table_id    INTEGER NOT NULL,
    position    INTEGER NOT NULL,
    bounds      TEXT NOT NULL,
    snapshot    TEXT NOT NULL,
    row_count   INTEGER NOT NULL,
    PRIMARY KEY (pipeline_id, table_id, position)
) WITHOUT ROWID;
