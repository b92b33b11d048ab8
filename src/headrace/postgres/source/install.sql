-- headrace at the source: tells of DDL by logical messages, in the transaction that makes it; never a statement's text.
-- No table: it would be published FOR ALL TABLES. All of it can be run again.
-- Anybody may emit logical messages. Those of the triggers are signed with a key that pipelines can read.
-- The triggers run with the rights of who installs them. So nothing of another role is kept: whoever owns a function, or
-- the schema that it is in, can put another one in its place.

SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_catalog.pg_advisory_xact_lock(@lock@);

-- Before anything is changed: a command of ours must not run what another role has put here.
DO $headrace$
DECLARE
    found record;
BEGIN
    SELECT o.object, r.rolname INTO found
    FROM (
        SELECT pg_catalog.format('schema %I', n.nspname) AS object, n.nspowner AS owner
        FROM pg_catalog.pg_namespace n WHERE n.nspname = '@schema@'
        UNION ALL
        SELECT pg_catalog.format('function %s', p.oid::pg_catalog.regprocedure), p.proowner
        FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = '@schema@'
    ) AS o
    JOIN pg_catalog.pg_roles r ON r.oid = o.owner
    WHERE r.rolname <> current_user AND NOT r.rolsuper
    LIMIT 1;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION '% belongs to role %, who could replace what is installed there', found.object, found.rolname
            USING ERRCODE = '@foreign@', HINT = 'Look at what is in it, then: DROP SCHEMA @schema@ CASCADE';
    END IF;
END
$headrace$;

@remove@

DO $headrace$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = '@schema@') THEN
        CREATE SCHEMA @schema@;
    END IF;
END
$headrace$;
REVOKE ALL ON SCHEMA @schema@ FROM PUBLIC;

CREATE FUNCTION @schema@.version() RETURNS pg_catalog.int4
LANGUAGE sql IMMUTABLE AS 'SELECT @version@';

COMMENT ON FUNCTION @schema@.version() IS 'the version of what headrace installed at this source';

-- The key is in a large object: no table, in no publication, and readable by its owner only. An earlier key is kept, so
-- that messages which no pipeline has read yet stay valid. It is kept as HMAC uses it: the secret with the inner pad, then
-- with the outer one.
DO $headrace$
DECLARE
    key oid;
    secret bytea;
    reader name;
BEGIN
    SELECT m.oid INTO key
    FROM pg_largeobject_metadata m
    JOIN pg_roles r ON r.oid = m.lomowner AND (r.rolsuper OR r.rolname = current_user)
    JOIN pg_description d ON d.objoid = m.oid AND d.classoid = 'pg_catalog.pg_largeobject'::regclass
    WHERE d.description = '@key_comment@' AND m.lomacl IS NULL
    ORDER BY m.oid LIMIT 1;
    IF key IS NULL THEN
        SELECT string_agg(uuid_send(gen_random_uuid()), decode('', 'hex')) INTO secret FROM generate_series(1, 4);
        SELECT lo_from_bytea(0, string_agg(
            set_byte(decode('00', 'hex'), 0, get_byte(secret, i) # pad), decode('', 'hex') ORDER BY n, i)) INTO key
        FROM (VALUES (1, 54), (2, 92)) AS p(n, pad), generate_series(0, 63) AS i;
        EXECUTE format('COMMENT ON LARGE OBJECT %s IS %L', key, '@key_comment@');
    END IF;
    EXECUTE format('CREATE FUNCTION @schema@.message_key() RETURNS pg_catalog.bytea LANGUAGE sql STABLE SECURITY DEFINER '
        'SET search_path = pg_catalog, pg_temp AS %L', format('SELECT pg_catalog.lo_get(%s)', key));
    REVOKE ALL ON FUNCTION @schema@.message_key() FROM PUBLIC;
    -- A role with REPLICATION can read all of the cluster anyway. Others have to be granted it.
    FOR reader IN SELECT rolname FROM pg_roles WHERE rolreplication AND NOT rolsuper LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA @schema@ TO %I', reader);
        EXECUTE format('GRANT EXECUTE ON FUNCTION @schema@.message_key() TO %I', reader);
    END LOOP;
END
$headrace$;

COMMENT ON FUNCTION @schema@.message_key() IS 'the key that messages about DDL are signed with';

-- Computes an HMAC-SHA-256, in hexadecimal digits. NULL if the key cannot be read.
CREATE FUNCTION @schema@.mac(signed pg_catalog.text) RETURNS pg_catalog.text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $headrace$
DECLARE
    key bytea;
BEGIN
    key := @schema@.message_key();
    RETURN encode(sha256(substr(key, 65) || sha256(substr(key, 1, 64) || convert_to(signed, 'UTF8'))), 'hex');
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$headrace$;

-- What one event trigger leaves for another is in a setting that ends with the transaction. Everybody may change settings:
-- so it is signed, for this transaction, and anything else counts as nothing.
CREATE FUNCTION @schema@.pending() RETURNS pg_catalog.jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $headrace$
DECLARE
    kept text := nullif(current_setting('headrace.pending', true), '');
BEGIN
    IF left(kept, 64) = @schema@.mac(format(E'pending\n%s\n%s', pg_current_xact_id(), substr(kept, 65))) THEN
        RETURN substr(kept, 65)::jsonb;
    END IF;
    RETURN '{}';
END
$headrace$;

CREATE FUNCTION @schema@.set_pending(pending pg_catalog.jsonb) RETURNS pg_catalog.void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $headrace$
BEGIN
    PERFORM set_config('headrace.pending',
        coalesce(@schema@.mac(format(E'pending\n%s\n%s', pg_current_xact_id(), pending)) || pending::text, ''), true);
END
$headrace$;

-- Emits a message with its HMAC-SHA-256. The database and the transaction are part of what is signed: a copy of the
-- message is of no use in another one.
CREATE FUNCTION @schema@.emit(prefix pg_catalog.text, message pg_catalog.json) RETURNS pg_catalog.void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $headrace$
DECLARE
    signed text := format('%s, "database" : %s, "transaction" : %s}', left(message::text, -1),
        (SELECT oid FROM pg_database WHERE datname = current_database()), pg_current_xact_id());
BEGIN
    -- In UTF-8 whatever the database's encoding is: the stream does not convert messages.
    PERFORM pg_logical_emit_message(true, prefix, convert_to(
        format('%s, "mac" : "%s"}', left(signed, -1), @schema@.mac(prefix || chr(10) || signed)), 'UTF8'));
END
$headrace$;

-- For people. A value is printed as in the stream: these are the settings of every session of headrace.
CREATE FUNCTION @schema@.describe(pg_catalog.oid[]) RETURNS pg_catalog.json
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
@describe@
    );
END
$headrace$;

COMMENT ON FUNCTION @schema@.describe(pg_catalog.oid[]) IS 'what the catalog says about these tables';

CREATE FUNCTION @schema@.ddl_command_end() RETURNS pg_catalog.event_trigger
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
    locked oid[];
BEGIN
    -- Nobody listens, or this session asked for silence.
    IF current_setting('wal_level') <> 'logical'
        OR lower(current_setting('headrace.skip_ddl', true)) IN ('on', 'true', 'yes', '1') THEN
        RETURN;
    END IF;
    -- One line is this function's own. More: the command was not the client's, whose statement current_query() shows.
    GET DIAGNOSTICS place = PG_CONTEXT;
    BEGIN
        pending := @schema@.pending();
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
                WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'headrace', '@schema@')
                ORDER BY c.oid
            );
        END IF;
        -- What another table is rewritten for stays: this may be a command of a function that a rewrite calls.
        PERFORM @schema@.set_pending(jsonb_build_object(
            'rewrites', coalesce(pending -> 'rewrites', '{}') - coalesce(tables, '{}')::text[]))
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
            PERFORM @schema@.emit('headrace.publication', json_build_object('version', 1,
                'xid', own, 'tag', tg_tag, 'publication', publication));
        END LOOP;
        -- Not all of these tables are locked: ALTER TYPE and ALTER SCHEMA lock none. Another transaction may alter such a
        -- table meanwhile and commit first, and what is read here is then out of date when it is sent. Nor does a snapshot
        -- of an earlier statement show what others have committed since. Locks of these modes exclude each ALTER TABLE.
        IF tables <> '{}' AND current_setting('transaction_isolation') = 'read committed' THEN
            locked := ARRAY(
                SELECT l.relation FROM pg_locks l
                WHERE l.locktype = 'relation' AND l.pid = pg_backend_pid() AND l.granted
                AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
                               'AccessExclusiveLock'));
        END IF;
        FOREACH affected IN ARRAY coalesce(tables, '{}') LOOP
            description := (
@describe_affected@
            );
            -- A partitioned table has no rows but those of its leaves.
            SELECT bit_or(r.value::int) INTO reasons FROM jsonb_each_text(pending -> 'rewrites') AS r
            WHERE r.key::oid = affected OR (description #> '{tables,0,leaves}')::jsonb @> r.key::jsonb;
            PERFORM @schema@.emit('headrace.ddl.' || affected, json_build_object('version', 1,
                'xid', own, 'tag', tg_tag, 'rewrite', coalesce(reasons, 0), 'plain', plain,
                'locked', affected = ANY (coalesce(locked, '{}')), 'catalog', description));
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
CREATE FUNCTION @schema@.sql_drop() RETURNS pg_catalog.event_trigger
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
                   AND d.schema_name NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'headrace', '@schema@')),
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
        PERFORM @schema@.emit('headrace.ddl.' || t.relation, json_build_object('version', 1,
            'tag', tg_tag, 'rewrite', 0, 'plain', false, 'dropped', true))
        FROM unnest(dropped) AS t(relation);
        -- What other tables lost, ddl_command_end tells: a setting that ends with the transaction keeps it until then.
        PERFORM @schema@.set_pending(@schema@.pending() || jsonb_build_object(
            'relations', coalesce(touched, '{}')::int8[], 'publications', coalesce(publications, '{}')))
        WHERE touched IS NOT NULL OR publications IS NOT NULL;
    EXCEPTION WHEN OTHERS THEN
        RAISE WARNING 'headrace cannot tell of this %: %', tg_tag, sqlerrm
            USING HINT = 'Pipelines will see what they can of it by the next change of a row.';
    END;
END
$headrace$;

CREATE FUNCTION @schema@.table_rewrite() RETURNS pg_catalog.event_trigger
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
        PERFORM @schema@.set_pending(p.pending || jsonb_build_object('rewrites',
            coalesce(p.pending -> 'rewrites', '{}') || jsonb_build_object(
                pg_event_trigger_table_rewrite_oid(), pg_event_trigger_table_rewrite_reason())))
        FROM (SELECT @schema@.pending()) AS p(pending);
    EXCEPTION WHEN OTHERS THEN
        RAISE WARNING 'headrace cannot tell why this % rewrites a table: %', tg_tag, sqlerrm
            USING HINT = 'Copy the table again: headrace resync';
    END;
END
$headrace$;

REVOKE ALL ON FUNCTION @schema@.describe(pg_catalog.oid[]), @schema@.ddl_command_end(), @schema@.sql_drop(),
    @schema@.table_rewrite(), @schema@.emit(pg_catalog.text, pg_catalog.json), @schema@.mac(pg_catalog.text),
    @schema@.pending(), @schema@.set_pending(pg_catalog.jsonb) FROM PUBLIC;

CREATE EVENT TRIGGER headrace_ddl_command_end ON ddl_command_end EXECUTE FUNCTION @schema@.ddl_command_end();
CREATE EVENT TRIGGER headrace_sql_drop ON sql_drop EXECUTE FUNCTION @schema@.sql_drop();
CREATE EVENT TRIGGER headrace_table_rewrite ON table_rewrite EXECUTE FUNCTION @schema@.table_rewrite();
-- Also in sessions that restore a dump with their triggers off.
ALTER EVENT TRIGGER headrace_ddl_command_end ENABLE ALWAYS;
ALTER EVENT TRIGGER headrace_sql_drop ENABLE ALWAYS;
ALTER EVENT TRIGGER headrace_table_rewrite ENABLE ALWAYS;
