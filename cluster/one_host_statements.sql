-- Each statement follows the line with its name.

-- name: entry_get
SELECT key, value, revision FROM entry WHERE key = ?1

-- name: entry_list
SELECT key, value, revision FROM entry WHERE key >= ?1 AND substr(key, 1, ?2) = ?1 ORDER BY key

-- name: entry_put
INSERT INTO entry (key, value, revision) VALUES (?1, ?2, ?3)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, revision = excluded.revision

-- name: entry_delete
DELETE FROM entry WHERE key = ?1

-- name: revision_last
SELECT last FROM revision

-- name: revision_next
UPDATE revision SET last = last + 1 RETURNING last

-- name: change_add
INSERT INTO change (revision, key, value) VALUES (?1, ?2, ?3)

-- name: change_since
SELECT key, value, revision FROM change WHERE revision > ?1 AND revision <= ?2 AND substr(key, 1, ?4) = ?3
ORDER BY revision, key

-- name: change_trim
DELETE FROM change WHERE revision <= ?1

-- name: lease_grant
INSERT INTO lease (ttl_ms, deadline_ms) VALUES (?1, ?2) RETURNING id

-- name: lease_renew
UPDATE lease SET deadline_ms = ?2 + ttl_ms WHERE id = ?1

-- name: lease_find
SELECT id FROM lease WHERE id = ?1

-- name: lease_expired
SELECT id FROM lease WHERE deadline_ms <= ?1 OR deadline_ms > ?1 + ttl_ms + ?2

-- name: holder_put
INSERT INTO holder (lease, token) VALUES (?1, ?2)

-- name: holder_all
SELECT DISTINCT token FROM holder

-- name: holder_leases
SELECT lease FROM holder WHERE token = ?1

-- name: holder_delete
DELETE FROM holder WHERE lease = ?1

-- name: lease_end
DELETE FROM lease WHERE id = ?1

-- name: held_by
SELECT key FROM held WHERE lease = ?1 ORDER BY key

-- name: held_put
INSERT INTO held (key, lease) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET lease = excluded.lease

-- name: held_delete
DELETE FROM held WHERE key = ?1
