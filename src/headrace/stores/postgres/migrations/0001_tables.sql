CREATE TABLE headrace.table_state (
    pipeline_id bigint NOT NULL,
    table_id    bigint NOT NULL,
    step        bigint NOT NULL,
    state       text NOT NULL
        CHECK (state IN ('init', 'data_sync', 'finished_copy', 'sync_done', 'ready', 'errored')),
    detail      json NOT NULL,
    entered_at  timestamptz NOT NULL,
    PRIMARY KEY (pipeline_id, table_id, step)
);

CREATE TABLE headrace.table_schema (
    pipeline_id  bigint NOT NULL,
    table_id     bigint NOT NULL,
    snapshot_lsn pg_lsn NOT NULL,
    definition   json NOT NULL,
    PRIMARY KEY (pipeline_id, table_id, snapshot_lsn)
);

-- table_id 0 is the apply loop.
CREATE TABLE headrace.progress (
    pipeline_id bigint NOT NULL,
    table_id    bigint NOT NULL,
    lsn         pg_lsn NOT NULL,
    PRIMARY KEY (pipeline_id, table_id)
);

CREATE TABLE headrace.destination_table (
    pipeline_id           bigint NOT NULL,
    table_id              bigint NOT NULL,
    destination_table_id  text NOT NULL,
    snapshot_lsn          pg_lsn NOT NULL,
    previous_snapshot_lsn pg_lsn,
    status                text NOT NULL CHECK (status IN ('applying', 'applied')),
    mask                  json NOT NULL,
    PRIMARY KEY (pipeline_id, table_id)
);
