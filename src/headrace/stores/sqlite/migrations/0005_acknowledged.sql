CREATE TABLE acknowledged (
    pipeline_id INTEGER NOT NULL,
    table_id    INTEGER NOT NULL,
    lsn         TEXT NOT NULL CHECK (length(lsn) = 16),
    PRIMARY KEY (pipeline_id, table_id)
) WITHOUT ROWID;
