CREATE TABLE table_request (
    pipeline_id INTEGER NOT NULL,
    table_id    INTEGER NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('resync', 'rollback', 'rollback_to_init')),
    PRIMARY KEY (pipeline_id, table_id)
) WITHOUT ROWID;
