CREATE TABLE headrace.table_request (
    pipeline_id bigint NOT NULL,
    table_id    bigint NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('resync', 'rollback', 'rollback_to_init')),
    PRIMARY KEY (pipeline_id, table_id)
);
