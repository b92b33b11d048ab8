-- Removes what install.sql made, of any version; its schema too, unless somebody else has things in it.
SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_catalog.pg_advisory_xact_lock(@lock@);

@remove@

SELECT lo_unlink(m.oid)
FROM pg_largeobject_metadata m
JOIN pg_roles r ON r.oid = m.lomowner AND (r.rolsuper OR r.rolname = current_user)
JOIN pg_description d ON d.objoid = m.oid AND d.classoid = 'pg_catalog.pg_largeobject'::regclass
WHERE d.description = '@key_comment@';

DO $headrace$
BEGIN
    DROP SCHEMA IF EXISTS @schema@;
EXCEPTION WHEN dependent_objects_still_exist THEN
    NULL;
END
$headrace$;
