-- Which run of a pipeline may write to its part of the store. Times are this server's.
CREATE TABLE headrace.lease (
    pipeline_id bigint NOT NULL PRIMARY KEY,
    token       text NOT NULL,
    host        text NOT NULL,
    pid         bigint NOT NULL,
    since       timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL
);
