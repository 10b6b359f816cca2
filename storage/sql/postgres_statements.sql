-- Each statement follows the line with its name. {uid} stands for a partition's integer, {schema} for a name that was
-- checked to be a plain identifier; nothing else is filled in. All tables are found by the session's search_path.

-- name: session
-- Durable whatever the role's default is. Plans are made once, and never scan a table that was small by chance.
SELECT
    set_config('search_path', $1, false),
    set_config('statement_timeout', $2, false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false),
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('enable_seqscan', 'off', false),
    set_config('jit', 'off', false),
    set_config('idle_in_transaction_session_timeout', $2, false)

-- name: schema_exists
SELECT to_regnamespace($1) IS NOT NULL

-- name: schema_make
CREATE SCHEMA {schema}

-- name: migrations_exist
SELECT to_regclass('migration') IS NOT NULL

-- name: migrations_table
CREATE TABLE migration (
    number integer PRIMARY KEY,
    needs integer NOT NULL,  -- a program that knows no migration of this number must not touch the schema
    applied_at timestamptz NOT NULL DEFAULT now()
)

-- name: migrations_lock
SELECT pg_advisory_xact_lock(hashtextextended('querator migrations ' || $1, 0))

-- name: migrations_state
SELECT coalesce(max(number), 0) AS number, coalesce(max(needs), 0) AS needs FROM migration

-- name: migrations_add
INSERT INTO migration (number, needs) VALUES ($1, $2)

-- name: alive
SELECT pg_is_in_recovery()

-- name: partition_list
SELECT uid FROM partition ORDER BY uid

-- name: partition_lock
SELECT pg_advisory_xact_lock(hashtextextended('querator partition ' || current_schema(), $1))

-- name: partition_find
SELECT epoch FROM partition WHERE uid = $1

-- name: partition_open
UPDATE partition AS p SET epoch = $2, opened = nextval('opening')
WHERE p.uid = $1 AND p.epoch <= $2
RETURNING p.ctid AS place, p.opened, p.number, p.summary

-- name: partition_drop
DELETE FROM partition WHERE uid = {uid};
DROP FUNCTION IF EXISTS commit_{uid};
DROP TABLE IF EXISTS block_{uid}, record_{uid}

-- name: commit
SELECT commit_{uid}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: block_scan
SELECT id, data FROM block_{uid} WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT $3

-- name: block_scan_reverse
SELECT id, data FROM block_{uid} WHERE id BETWEEN $1 AND $2 ORDER BY id DESC LIMIT $3

-- name: record_scan
SELECT key, value FROM record_{uid} WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3

-- name: record_scan_reverse
SELECT key, value FROM record_{uid} WHERE key >= $1 AND key < $2 ORDER BY key DESC LIMIT $3

-- name: record_get
SELECT key, value FROM record_{uid} WHERE key = ANY ($1)
