-- What version 3 installed, for tests of the upgrade.
BEGIN;

-- headrace at the source: tells of DDL by logical messages, in the transaction that makes it; never a statement's text.
-- Functions and event triggers only: a table would be published FOR ALL TABLES. All of it can be run again.
-- The triggers run with the rights of who installs them, so they call only pg_catalog: the schema may be another's.

SET LOCAL client_min_messages = warning;
-- As the store does, which may live in the same schema and be made at the same time.
SELECT pg_catalog.pg_advisory_xact_lock(1212437059);

DO $headrace$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'headrace') THEN
        CREATE SCHEMA headrace;
    END IF;
END
$headrace$;

CREATE OR REPLACE FUNCTION headrace.version() RETURNS pg_catalog.int4
LANGUAGE sql IMMUTABLE AS 'SELECT 3';

COMMENT ON FUNCTION headrace.version() IS 'the version of what headrace installed at this source';

-- For people. A value is printed as in the stream: these are the settings of every session of headrace.
CREATE OR REPLACE FUNCTION headrace.describe(pg_catalog.oid[]) RETURNS pg_catalog.json
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
SET intervalstyle = 'postgres'
SET extra_float_digits = 3
SET timezone = 'UTC'
SET bytea_output = 'hex'
-- A few rows out of large catalogs: by index, whatever is estimated.
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $headrace$
BEGIN
    RETURN (
-- What the catalog says about the tables of its one parameter (oid[]), as one JSON document. `postgres.catalog` asks it,
-- and so does the event trigger at the source: both must see a table alike. Takes no lock on any table: it runs in the
-- middle of other people's DDL. Defaults name what they use by its schema, if the search_path is pg_catalog alone.
WITH RECURSIVE tables AS (
    SELECT c.oid, c.relname, n.nspname, c.relreplident, c.relkind, c.relnatts, c.relfilenode,
           s.description AS comment
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_description s
        ON s.objoid = c.oid AND s.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass AND s.objsubid = 0
    WHERE c.oid = ANY ($1)
), columns AS (
    SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated, a.attidentity,
           -- A default has no columns in it. Given the table, pg_get_expr would lock it.
           CASE WHEN a.attgenerated = '' THEN pg_catalog.pg_get_expr(d.adbin, 0) END AS default_text,
           CASE WHEN a.atthasmissing THEN a.attmissingval::pg_catalog.text END AS missing,
           s.description AS comment
    FROM tables t
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_catalog.pg_description s
        ON s.objoid = a.attrelid AND s.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass AND s.objsubid = a.attnum
), reached(oid) AS (
    -- From the columns to elements, domain bases and a composite's attributes.
    SELECT atttypid FROM columns
    UNION
    SELECT next.oid FROM reached r JOIN pg_catalog.pg_type y ON y.oid = r.oid CROSS JOIN LATERAL (
        SELECT y.typbasetype WHERE y.typtype = 'd'
        UNION ALL
        SELECT e.oid FROM pg_catalog.pg_type e WHERE e.oid = y.typelem AND e.typarray = y.oid
        UNION ALL
        SELECT a.atttypid FROM pg_catalog.pg_attribute a
        WHERE y.typtype = 'c' AND a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS next(oid)
), types AS (
    -- An array type is one that its element type names as its array; `typelem` alone is also set for point, name and
    -- oidvector, whose text is not an array's.
    SELECT y.oid, y.typname, y.typtype, y.typdelim, y.typtypmod, n.nspname,
           CASE WHEN y.typtype = 'd' THEN y.typbasetype END AS base, e.oid AS element,
           CASE y.typtype
               WHEN 'e' THEN (SELECT pg_catalog.json_agg(enumlabel ORDER BY enumsortorder)
                              FROM pg_catalog.pg_enum WHERE enumtypid = y.oid)
               WHEN 'c' THEN (SELECT pg_catalog.json_agg(pg_catalog.json_build_object('name', a.attname,
                                         'type', a.atttypid::pg_catalog.int8, 'typmod', a.atttypmod) ORDER BY a.attnum)
                              FROM pg_catalog.pg_attribute a
                              WHERE a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped)
           END AS members
    FROM reached r
    JOIN pg_catalog.pg_type y ON y.oid = r.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = y.typnamespace
    LEFT JOIN pg_catalog.pg_type e ON e.oid = y.typelem AND e.typarray = y.oid AND y.typtype <> 'd'
), indexes AS (
    -- Key columns only: INCLUDE columns stand behind them in indkey.
    SELECT i.indrelid, i.indisprimary, i.indisreplident, i.indimmediate,
           (i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1] AS attnums
    FROM pg_catalog.pg_index i JOIN tables t ON t.oid = i.indrelid
    WHERE i.indisvalid AND (i.indisprimary OR i.indisreplident)
), partitions AS (
    -- Not by pg_partition_tree, which locks every partition: two ALTERs of two partitions would wait for each other.
    SELECT oid AS root, oid, relkind FROM tables WHERE relkind = 'p'
    UNION ALL
    SELECT p.root, c.oid, c.relkind
    FROM partitions p
    JOIN pg_catalog.pg_inherits h ON h.inhparent = p.oid AND NOT h.inhdetachpending
    JOIN pg_catalog.pg_class c ON c.oid = h.inhrelid
    WHERE p.relkind = 'p'
)
SELECT pg_catalog.json_build_object(
    'tables', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object('oid', t.oid::pg_catalog.int8, 'name', t.relname,
                   'schema', t.nspname, 'identity', t.relreplident, 'comment', t.comment, 'natts', t.relnatts,
                   'storage', t.relfilenode::pg_catalog.int8, 'leaves', (
                       SELECT pg_catalog.json_agg(p.oid::pg_catalog.int8 ORDER BY p.oid)
                       FROM partitions p WHERE p.root = t.oid AND p.relkind <> 'p')) ORDER BY t.oid)
        FROM tables t),
    'columns', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object('table', attrelid::pg_catalog.int8, 'attnum', attnum,
                   'name', attname, 'type', atttypid::pg_catalog.int8, 'typmod', atttypmod, 'nullable', NOT attnotnull,
                   'default', default_text, 'generated', attgenerated <> '', 'identity', attidentity,
                   'comment', comment,
                   -- The only element of an array, printed as one: quoted if need be. Not by a cast, which would need
                   -- the delimiter to be a comma.
                   'missing', CASE WHEN pg_catalog.left(missing, 2) = '{"' THEN (missing::pg_catalog.text[])[1]
                                   ELSE pg_catalog.substr(missing, 2, pg_catalog.length(missing) - 2) END)
                   ORDER BY attrelid, attnum)
        FROM columns),
    'indexes', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object('table', indrelid::pg_catalog.int8,
                   'primary', indisprimary, 'identity', indisreplident, 'immediate', indimmediate, 'attnums', attnums)
                   ORDER BY indrelid, indisprimary DESC)
        FROM indexes),
    'types', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object('oid', oid::pg_catalog.int8, 'name', typname,
                   'schema', nspname, 'kind', typtype, 'delimiter', typdelim, 'base', base::pg_catalog.int8,
                   'element', element::pg_catalog.int8, 'typmod', typtypmod, 'members', members) ORDER BY oid)
        FROM types))

    );
END
$headrace$;

COMMENT ON FUNCTION headrace.describe(pg_catalog.oid[]) IS 'what the catalog says about these tables';

CREATE OR REPLACE FUNCTION headrace.ddl_command_end() RETURNS pg_catalog.event_trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
SET intervalstyle = 'postgres'
SET extra_float_digits = 3
SET timezone = 'UTC'
SET bytea_output = 'hex'
-- A few rows out of large catalogs: by index, whatever is estimated.
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $headrace$
DECLARE
    place text;
    pending jsonb;
    relations oid[];
    types oid[];
    namespaces oid[];
    tables oid[];
    affected oid;
    publications text[];
    more text[];
    publication text;
    plain bool;
    description json;
    reasons int;
    own int8;
BEGIN
    -- Nobody listens, or this session asked for silence.
    IF current_setting('wal_level') <> 'logical'
        OR lower(current_setting('headrace.skip_ddl', true)) IN ('on', 'true', 'yes', '1') THEN
        RETURN;
    END IF;
    -- One line is this function's own. More: the command was not the client's, whose statement current_query() shows.
    GET DIAGNOSTICS place = PG_CONTEXT;
    BEGIN
        pending := coalesce(nullif(current_setting('headrace.pending', true), ''), '{}')::jsonb;
        SELECT array_agg(objid) FILTER (WHERE classid = 'pg_catalog.pg_class'::regclass),
               array_agg(objid) FILTER (WHERE classid = 'pg_catalog.pg_type'::regclass),
               array_agg(objid) FILTER (
                   WHERE classid = 'pg_catalog.pg_namespace'::regclass AND command_tag = 'ALTER SCHEMA'),
               array_agg(coalesce(p.pubname, q.pubname)) FILTER (WHERE coalesce(p.oid, q.oid) IS NOT NULL)
        INTO relations, types, namespaces, publications
        FROM pg_event_trigger_ddl_commands() AS c
        LEFT JOIN pg_publication p ON c.classid = 'pg_catalog.pg_publication'::regclass AND p.oid = c.objid
        LEFT JOIN pg_publication_rel r ON c.classid = 'pg_catalog.pg_publication_rel'::regclass AND r.oid = c.objid
        LEFT JOIN pg_publication q ON q.oid = r.prpubid
        WHERE NOT c.in_extension AND c.command_tag NOT IN ('COMMENT', 'SECURITY LABEL');
        IF tg_tag = 'ALTER PUBLICATION' AND current_setting('server_version_num')::int >= 150000 THEN
            SELECT array_agg(p.pubname) INTO more
            FROM pg_event_trigger_ddl_commands() AS c
            JOIN pg_publication_namespace n ON n.oid = c.objid
            JOIN pg_publication p ON p.oid = n.pnpubid
            WHERE c.classid = 'pg_catalog.pg_publication_namespace'::regclass;
        END IF;
        publications := ARRAY(
            SELECT unnest(publications) UNION SELECT unnest(more)
            UNION SELECT jsonb_array_elements_text(pending -> 'publications') ORDER BY 1
        );
        IF pending ? 'relations' THEN
            relations := relations || ARRAY(SELECT jsonb_array_elements_text(pending -> 'relations')::oid);
        END IF;
        IF namespaces IS NOT NULL THEN
            relations := relations || ARRAY(SELECT oid FROM pg_class WHERE relnamespace = ANY (namespaces));
            types := types || ARRAY(SELECT oid FROM pg_type WHERE typnamespace = ANY (namespaces));
        END IF;
        IF relations IS NOT NULL OR types IS NOT NULL THEN
            -- Permanent tables, those that inherit from them, the partitioned ones above them, and tables with a column
            -- of such a type, however deep.
            tables := ARRAY(
                WITH RECURSIVE using_types(class, object) AS (
                    SELECT 'pg_catalog.pg_type'::regclass::oid, y.object FROM unnest(types) AS y(object)
                    UNION
                    SELECT 'pg_catalog.pg_type'::regclass::oid, c.reltype
                    FROM pg_class c WHERE c.oid = ANY (relations) AND c.reltype <> 0
                    UNION
                    SELECT s.class, s.object
                    FROM using_types u
                    JOIN pg_depend d ON d.refclassid = 'pg_catalog.pg_type'::regclass AND d.refobjid = u.object
                    LEFT JOIN pg_class c ON d.classid = 'pg_catalog.pg_class'::regclass AND c.oid = d.objid
                    CROSS JOIN LATERAL (
                        SELECT d.classid, d.objid
                        WHERE d.classid = 'pg_catalog.pg_type'::regclass OR c.relkind IN ('r', 'p')
                        UNION ALL
                        SELECT 'pg_catalog.pg_type'::regclass::oid, c.reltype WHERE c.relkind IN ('r', 'p', 'c')
                    ) AS s(class, object)
                    WHERE u.class = 'pg_catalog.pg_type'::regclass
                ), named(relation) AS (
                    SELECT unnest(relations)
                    UNION
                    SELECT object FROM using_types WHERE class = 'pg_catalog.pg_class'::regclass
                ), below(relation) AS (
                    SELECT relation FROM named
                    UNION
                    SELECT h.inhrelid FROM below b JOIN pg_inherits h ON h.inhparent = b.relation
                ), above(relation) AS (
                    SELECT relation FROM named
                    UNION
                    SELECT h.inhparent FROM above b JOIN pg_inherits h ON h.inhrelid = b.relation
                    JOIN pg_class c ON c.oid = h.inhparent AND c.relkind = 'p'
                )
                SELECT c.oid
                FROM (SELECT relation FROM below UNION SELECT relation FROM above) AS t
                JOIN pg_class c ON c.oid = t.relation AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
                JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'headrace')
                ORDER BY c.oid
            );
        END IF;
        -- What another table is rewritten for stays: this may be a command of a function that a rewrite calls.
        PERFORM set_config('headrace.pending', jsonb_build_object(
            'rewrites', coalesce(pending -> 'rewrites', '{}') - coalesce(tables, '{}')::text[])::text, true)
        WHERE pending <> '{}';
        plain := strpos(place, E'\n') = 0 AND current_query() ~* '^\s*ALTER\s+TABLE\s[^;]*;?\s*$'
            AND current_query() !~* '\mUSING\M';
        IF tables <> '{}' OR publications <> '{}' THEN
            -- To the messages of a transaction that is sent while it runs, Postgres gives the transaction's own id:
            -- rolling a savepoint back does not take them back. So they say themselves which savepoint they are of, the
            -- innermost that has an id; the first message gives one to this block.
            PERFORM pg_logical_emit_message(true, 'headrace', '');
            BEGIN
                SELECT l.transactionid::text::int8 INTO own FROM pg_locks l
                WHERE l.locktype = 'transactionid' AND l.pid = pg_backend_pid() AND l.mode = 'ExclusiveLock'
                ORDER BY age(l.transactionid) LIMIT 1;
            EXCEPTION WHEN OTHERS THEN
                -- Who may not look tells all the rest.
                own := NULL;
            END;
        END IF;
        FOREACH publication IN ARRAY publications LOOP
            -- In UTF-8 whatever the database's encoding is: the stream does not convert messages.
            PERFORM pg_logical_emit_message(true, 'headrace.publication', convert_to(json_build_object('version', 1,
                'xid', own, 'tag', tg_tag, 'publication', publication)::text, 'UTF8'));
        END LOOP;
        FOREACH affected IN ARRAY coalesce(tables, '{}') LOOP
            description := (
-- What the catalog says about the tables of its one parameter (oid[]), as one JSON document. `postgres.catalog` asks it,
-- and so does the event trigger at the source: both must see a table alike. Takes no lock on any table: it runs in the
-- middle of other people's DDL. Defaults name what they use by its schema, if the search_path is pg_catalog alone.
WITH RECURSIVE tables AS (
    SELECT c.oid, c.relname, n.nspname, c.relreplident, c.relkind, c.relnatts, c.relfilenode,
           s.description AS comment
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_description s
        ON s.objoid = c.oid AND s.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass AND s.objsubid = 0
    WHERE c.oid = ANY (ARRAY[affected])
), columns AS (
    SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated, a.attidentity,
           -- A default has no columns in it. Given the table, pg_get_expr would lock it.
           CASE WHEN a.attgenerated = '' THEN pg_catalog.pg_get_expr(d.adbin, 0) END AS default_text,
           CASE WHEN a.atthasmissing THEN a.attmissingval::pg_catalog.text END AS missing,
           s.description AS comment
    FROM tables t
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_catalog.pg_description s
        ON s.objoid = a.attrelid AND s.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass AND s.objsubid = a.attnum
), reached(oid) AS (
    -- From the columns to elements, domain bases and a composite's attributes.
    SELECT atttypid FROM columns
    UNION
    SELECT next.oid FROM reached r JOIN pg_catalog.pg_type y ON y.oid = r.oid CROSS JOIN LATERAL (
        SELECT y.typbasetype WHERE y.typtype = 'd'
        UNION ALL
        SELECT e.oid FROM pg_catalog.pg_type e WHERE e.oid = y.typelem AND e.typarray = y.oid
        UNION ALL
        SELECT a.atttypid FROM pg_catalog.pg_attribute a
        WHERE y.typtype = 'c' AND a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS next(oid)
), types AS (
    -- An array type is one that its element type names as its array; `typelem` alone is also set for point, name and
    -- oidvector, whose text is not an array's.
    SELECT y.oid, y.typname, y.typtype, y.typdelim, y.typtypmod, n.nspname,
           CASE WHEN y.typtype = 'd' THEN y.typbasetype END AS base, e.oid AS element,
           CASE y.typtype
               WHEN 'e' THEN (SELECT pg_catalog.json_agg(enumlabel ORDER BY enumsortorder)
                              FROM pg_catalog.pg_enum WHERE enumtypid = y.oid)
               WHEN 'c' THEN (SELECT pg_catalog.json_agg(pg_catalog.json_build_object('name', a.attname,
                                         'type', a.atttypid::pg_catalog.int8, 'typmod', a.atttypmod) ORDER BY a.attnum)
                              FROM pg_catalog.pg_attribute a
                              WHERE a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped)
           END AS members
    FROM reached r
    JOIN pg_catalog.pg_type y ON y.oid = r.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = y.typnamespace
    LEFT JOIN pg_catalog.pg_type e ON e.oid = y.typelem AND e.typarray = y.oid AND y.typtype <> 'd'
), indexes AS (
    -- Key columns only: INCLUDE columns stand behind them in indkey.
    SELECT i.indrelid, i.indisprimary, i.indisreplident, i.indimmediate,
           (i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1] AS attnums
    FROM pg_catalog.pg_index i JOIN tables t ON t.oid = i.indrelid
    WHERE i.indisvalid AND (i.indisprimary OR i.indisreplident)
), partitions AS (
    -- Not by pg_partition_tree, which locks every partition: two ALTERs of two partitions would wait for each other.
    SELECT oid AS root, oid, relkind FROM tables WHERE relkind = 'p'
    UNION ALL
    SELECT p.root, c.oid, c.relkind
    FROM partitions p
    JOIN pg_catalog.pg_inherits h ON h.inhparent = p.oid AND NOT h.inhdetachpending
    JOIN pg_catalog.pg_class c ON c.oid = h.inhrelid
    WHERE p.relkind = 'p'
)
SELECT pg_catalog.json_build_object(
    'tables', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object('oid', t.oid::pg_catalog.int8, 'name', t.relname,
                   'schema', t.nspname, 'identity', t.relreplident, 'comment', t.comment, 'natts', t.relnatts,
                   'storage', t.relfilenode::pg_catalog.int8, 'leaves', (
                       SELECT pg_catalog.json_agg(p.oid::pg_catalog.int8 ORDER BY p.oid)
                       FROM partitions p WHERE p.root = t.oid AND p.relkind <> 'p')) ORDER BY t.oid)
        FROM tables t),
    'columns', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object('table', attrelid::pg_catalog.int8, 'attnum', attnum,
                   'name', attname, 'type', atttypid::pg_catalog.int8, 'typmod', atttypmod, 'nullable', NOT attnotnull,
                   'default', default_text, 'generated', attgenerated <> '', 'identity', attidentity,
                   'comment', comment,
                   -- The only element of an array, printed as one: quoted if need be. Not by a cast, which would need
                   -- the delimiter to be a comma.
                   'missing', CASE WHEN pg_catalog.left(missing, 2) = '{"' THEN (missing::pg_catalog.text[])[1]
                                   ELSE pg_catalog.substr(missing, 2, pg_catalog.length(missing) - 2) END)
                   ORDER BY attrelid, attnum)
        FROM columns),
    'indexes', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object('table', indrelid::pg_catalog.int8,
                   'primary', indisprimary, 'identity', indisreplident, 'immediate', indimmediate, 'attnums', attnums)
                   ORDER BY indrelid, indisprimary DESC)
        FROM indexes),
    'types', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object('oid', oid::pg_catalog.int8, 'name', typname,
                   'schema', nspname, 'kind', typtype, 'delimiter', typdelim, 'base', base::pg_catalog.int8,
                   'element', element::pg_catalog.int8, 'typmod', typtypmod, 'members', members) ORDER BY oid)
        FROM types))

            );
            -- A partitioned table has no rows but those of its leaves.
            SELECT bit_or(r.value::int) INTO reasons FROM jsonb_each_text(pending -> 'rewrites') AS r
            WHERE r.key::oid = affected OR (description #> '{tables,0,leaves}')::jsonb @> r.key::jsonb;
            PERFORM pg_logical_emit_message(true, 'headrace.ddl.' || affected, convert_to(json_build_object('version', 1,
                'xid', own, 'tag', tg_tag, 'rewrite', coalesce(reasons, 0), 'plain', plain,
                'catalog', description)::text, 'UTF8'));
        END LOOP;
        -- Decoding takes the end of a message for its place, and the start of a change. Where the two belong to different
        -- subtransactions, the change that follows at once would come first. So something stands between them.
        PERFORM pg_logical_emit_message(true, 'headrace', '') WHERE tables <> '{}';
    EXCEPTION WHEN OTHERS THEN
        PERFORM set_config('headrace.pending', '', true);
        RAISE WARNING 'headrace cannot tell of this %: %', tg_tag, sqlerrm
            USING HINT = 'Pipelines will see what they can of it by the next change of a row.';
    END;
END
$headrace$;

-- STABLE, so that it sees the catalog as it was before the command: what is dropped is still there.
CREATE OR REPLACE FUNCTION headrace.sql_drop() RETURNS pg_catalog.event_trigger
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $headrace$
DECLARE
    dropped oid[];
    touched oid[];
    publications text[];
BEGIN
    -- Nobody listens, or this session asked for silence.
    IF current_setting('wal_level') <> 'logical'
        OR lower(current_setting('headrace.skip_ddl', true)) IN ('on', 'true', 'yes', '1') THEN
        RETURN;
    END IF;
    BEGIN
        SELECT array_agg(d.objid ORDER BY d.objid) FILTER (
                   WHERE d.object_type = 'table' AND coalesce(c.relpersistence, 'p') = 'p'
                   AND d.schema_name NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'headrace')),
               array_agg(coalesce(i.indrelid, f.adrelid, h.inhparent, d.objid)) FILTER (
                   WHERE i.indrelid IS NOT NULL OR f.adrelid IS NOT NULL OR h.inhparent IS NOT NULL
                   OR d.classid = 'pg_catalog.pg_class'::regclass AND d.objsubid > 0),
               array_agg(CASE d.object_type WHEN 'publication' THEN d.object_name ELSE d.address_args[1] END) FILTER (
                   WHERE d.object_type = 'publication'
                   OR tg_tag = 'ALTER PUBLICATION' AND d.object_type IN ('publication relation', 'publication namespace'))
        INTO dropped, touched, publications
        FROM pg_event_trigger_dropped_objects() AS d
        LEFT JOIN pg_class c ON d.classid = 'pg_catalog.pg_class'::regclass AND d.objsubid = 0 AND c.oid = d.objid
        LEFT JOIN pg_index i ON i.indexrelid = c.oid AND (i.indisprimary OR i.indisreplident)
        LEFT JOIN pg_inherits h ON h.inhrelid = c.oid AND c.relispartition AND c.relkind IN ('r', 'p', 'f')
        LEFT JOIN pg_attrdef f ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND f.oid = d.objid
        WHERE NOT d.is_temporary;
        PERFORM pg_logical_emit_message(true, 'headrace.ddl.' || t.relation, convert_to(json_build_object('version', 1,
            'tag', tg_tag, 'rewrite', 0, 'plain', false, 'dropped', true)::text, 'UTF8'))
        FROM unnest(dropped) AS t(relation);
        -- What other tables lost, ddl_command_end tells: a setting that ends with the transaction keeps it until then.
        PERFORM set_config('headrace.pending', (
            coalesce(nullif(current_setting('headrace.pending', true), ''), '{}')::jsonb || jsonb_build_object(
                'relations', coalesce(touched, '{}')::int8[], 'publications', coalesce(publications, '{}')))::text, true)
        WHERE touched IS NOT NULL OR publications IS NOT NULL;
    EXCEPTION WHEN OTHERS THEN
        RAISE WARNING 'headrace cannot tell of this %: %', tg_tag, sqlerrm
            USING HINT = 'Pipelines will see what they can of it by the next change of a row.';
    END;
END
$headrace$;

CREATE OR REPLACE FUNCTION headrace.table_rewrite() RETURNS pg_catalog.event_trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $headrace$
BEGIN
    -- Nobody listens, or this session asked for silence.
    IF current_setting('wal_level') <> 'logical'
        OR lower(current_setting('headrace.skip_ddl', true)) IN ('on', 'true', 'yes', '1') THEN
        RETURN;
    END IF;
    BEGIN
        PERFORM set_config('headrace.pending', (p.pending || jsonb_build_object('rewrites',
            coalesce(p.pending -> 'rewrites', '{}') || jsonb_build_object(
                pg_event_trigger_table_rewrite_oid(), pg_event_trigger_table_rewrite_reason())))::text, true)
        FROM (SELECT coalesce(nullif(current_setting('headrace.pending', true), ''), '{}')::jsonb) AS p(pending);
    EXCEPTION WHEN OTHERS THEN
        RAISE WARNING 'headrace cannot tell why this % rewrites a table: %', tg_tag, sqlerrm
            USING HINT = 'Copy the table again: headrace resync';
    END;
END
$headrace$;

REVOKE ALL ON FUNCTION headrace.describe(pg_catalog.oid[]), headrace.ddl_command_end(), headrace.sql_drop(),
    headrace.table_rewrite() FROM PUBLIC;

DROP EVENT TRIGGER IF EXISTS headrace_ddl_command_end;
DROP EVENT TRIGGER IF EXISTS headrace_sql_drop;
DROP EVENT TRIGGER IF EXISTS headrace_table_rewrite;
CREATE EVENT TRIGGER headrace_ddl_command_end ON ddl_command_end EXECUTE FUNCTION headrace.ddl_command_end();
CREATE EVENT TRIGGER headrace_sql_drop ON sql_drop EXECUTE FUNCTION headrace.sql_drop();
CREATE EVENT TRIGGER headrace_table_rewrite ON table_rewrite EXECUTE FUNCTION headrace.table_rewrite();
-- Also in sessions that restore a dump with their triggers off.
ALTER EVENT TRIGGER headrace_ddl_command_end ENABLE ALWAYS;
ALTER EVENT TRIGGER headrace_sql_drop ENABLE ALWAYS;
ALTER EVENT TRIGGER headrace_table_rewrite ENABLE ALWAYS;

COMMIT;
