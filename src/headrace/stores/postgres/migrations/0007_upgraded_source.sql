CREATE TABLE headrace.upgraded_source (
    pipeline_id     bigint NOT NULL,
    system_id       text NOT NULL,
    first_system_id text NOT NULL,
    PRIMARY KEY (pipeline_id, system_id)
);
