-- Each statement follows the line with its name. {uid} stands for a partition's integer, and nothing else is filled in.

-- name: file_tables
SELECT name FROM sqlite_master WHERE type = 'table'

-- name: file_table
SELECT name FROM sqlite_master WHERE type = 'table' AND name = ?1

-- name: file_version
SELECT version FROM querator_file

-- name: file_settle
UPDATE querator_file SET settled = settled + 1

-- name: partition_list
SELECT uid FROM partition ORDER BY uid

-- name: partition_find
SELECT epoch, number, summary FROM partition WHERE uid = ?1

-- name: partition_add
INSERT INTO partition (uid, epoch, number, summary, opened) VALUES (?1, 0, 0, x'', 0)

-- name: partition_remove
DELETE FROM partition WHERE uid = ?1

-- name: partition_open
UPDATE partition SET epoch = ?2, opened = opened + 1 WHERE uid = ?1 AND epoch <= ?2

-- name: partition_advance
UPDATE partition SET number = ?1, summary = ?2 WHERE uid = ?3 AND epoch = ?4 AND number = ?1 - 1

-- name: block_table
CREATE TABLE block_{uid} (id INTEGER PRIMARY KEY CHECK (id > 0), data BLOB NOT NULL)

-- name: block_put
INSERT INTO block_{uid} (id, data) VALUES (?1, ?2)

-- name: block_drop
DELETE FROM block_{uid} WHERE id = ?1

-- name: block_scan
SELECT id, data FROM block_{uid} WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3

-- name: block_scan_reverse
SELECT id, data FROM block_{uid} WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC LIMIT ?3

-- name: block_clear
DELETE FROM block_{uid} WHERE id IN (SELECT id FROM block_{uid} ORDER BY id LIMIT ?1)

-- name: block_table_drop
DROP TABLE block_{uid}

-- name: record_table
CREATE TABLE record_{uid} (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID

-- name: record_put
REPLACE INTO record_{uid} (key, value) VALUES (?1, ?2)

-- name: record_delete
DELETE FROM record_{uid} WHERE key = ?1

-- name: record_scan
SELECT key, value FROM record_{uid} WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3

-- name: record_scan_reverse
SELECT key, value FROM record_{uid} WHERE key >= ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3

-- name: record_get
SELECT key, value FROM record_{uid}
WHERE key IN (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)

-- name: record_clear
DELETE FROM record_{uid} WHERE key IN (SELECT key FROM record_{uid} ORDER BY key LIMIT ?1)

-- name: record_table_drop
DROP TABLE record_{uid}
