CREATE TABLE headrace.table_copy (
    pipeline_id  bigint NOT NULL,
    table_id     bigint NOT NULL,
    start_lsn    pg_lsn NOT NULL,
    snapshot_lsn pg_lsn NOT NULL,
    one_snapshot boolean NOT NULL,
    ranges       json NOT NULL,
    PRIMARY KEY (pipeline_id, table_id)
);

CREATE TABLE headrace.copied_range (
    pipeline_id bigint NOT NULL,
    table_id    bigint NOT NULL,
    position    bigint NOT NULL,
    bounds      json NOT NULL,
    snapshot    text NOT NULL,
    row_count   bigint NOT NULL,
    PRIMARY KEY (pipeline_id, table_id, position)
);
