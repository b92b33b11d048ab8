-- Event triggers first: commands on them fire none.
DROP EVENT TRIGGER IF EXISTS headrace_ddl_command_end;
DROP EVENT TRIGGER IF EXISTS headrace_sql_drop;
DROP EVENT TRIGGER IF EXISTS headrace_table_rewrite;
-- Up to version 3 all of it was in the schema `headrace`, which a store may have made, and may still use.
DO $headrace$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
               WHERE n.nspname = 'headrace' AND p.proname IN ('version', 'describe', 'ddl_command_end')) THEN
        DROP FUNCTION IF EXISTS headrace.ddl_command_end();
        DROP FUNCTION IF EXISTS headrace.sql_drop();
        DROP FUNCTION IF EXISTS headrace.table_rewrite();
        DROP FUNCTION IF EXISTS headrace.describe(pg_catalog.oid[]);
        DROP FUNCTION IF EXISTS headrace.version();
        BEGIN
            DROP SCHEMA headrace;
        EXCEPTION WHEN dependent_objects_still_exist THEN
            NULL;
        END;
    END IF;
END
$headrace$;

DROP FUNCTION IF EXISTS @schema@.ddl_command_end();
DROP FUNCTION IF EXISTS @schema@.sql_drop();
DROP FUNCTION IF EXISTS @schema@.table_rewrite();
DROP FUNCTION IF EXISTS @schema@.describe(pg_catalog.oid[]);
DROP FUNCTION IF EXISTS @schema@.emit(pg_catalog.text, pg_catalog.json);
DROP FUNCTION IF EXISTS @schema@.set_pending(pg_catalog.jsonb);
DROP FUNCTION IF EXISTS @schema@.pending();
DROP FUNCTION IF EXISTS @schema@.mac(pg_catalog.text);
DROP FUNCTION IF EXISTS @schema@.message_key();
DROP FUNCTION IF EXISTS @schema@.version();