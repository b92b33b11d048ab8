CREATE TABLE headrace.acknowledged (
    pipeline_id bigint NOT NULL,
    table_id    bigint NOT NULL,
    lsn         pg_lsn NOT NULL,
    PRIMARY KEY (pipeline_id, table_id)
);
