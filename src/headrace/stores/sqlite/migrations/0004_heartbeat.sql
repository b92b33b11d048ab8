CREATE TABLE heartbeat (
    pipeline_id INTEGER NOT NULL PRIMARY KEY,
    report      TEXT NOT NULL
) WITHOUT ROWID;
