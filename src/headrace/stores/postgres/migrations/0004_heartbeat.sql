CREATE TABLE headrace.heartbeat (
    pipeline_id bigint NOT NULL PRIMARY KEY,
    report      json NOT NULL
);
