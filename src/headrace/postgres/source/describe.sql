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
