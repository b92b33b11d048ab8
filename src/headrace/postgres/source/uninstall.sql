-- Removes what install.sql made, of any version; the schema too, unless somebody else, such as a store, has things in it.
SET LOCAL client_min_messages = warning;
SELECT pg_catalog.pg_advisory_xact_lock(@lock@);

DROP EVENT TRIGGER IF EXISTS headrace_ddl_command_end;
DROP EVENT TRIGGER IF EXISTS headrace_sql_drop;
DROP EVENT TRIGGER IF EXISTS headrace_table_rewrite;
DROP FUNCTION IF EXISTS headrace.ddl_command_end();
DROP FUNCTION IF EXISTS headrace.sql_drop();
DROP FUNCTION IF EXISTS headrace.table_rewrite();
DROP FUNCTION IF EXISTS headrace.describe(pg_catalog.oid[]);
DROP FUNCTION IF EXISTS headrace.version();

DO $headrace$
BEGIN
    DROP SCHEMA IF EXISTS headrace;
EXCEPTION WHEN dependent_objects_still_exist THEN
    NULL;
END
$headrace$;
