-- The tables of the file. A file of an earlier version gets those that it lacks.
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;

CREATE TABLE IF NOT EXISTS entry (
    key      TEXT PRIMARY KEY,
    value    BLOB NOT NULL,
    revision INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS revision (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    last     INTEGER NOT NULL
);

INSERT OR IGNORE INTO revision (only_row, last) VALUES (1, 0);

-- What watches read: the changes of the last revisions.
CREATE TABLE IF NOT EXISTS change (
    revision INTEGER NOT NULL,
    key      TEXT NOT NULL,
    value    BLOB,             -- NULL: deleted
    PRIMARY KEY (revision, key)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS lease (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    ttl_ms      INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL  -- by the host's clock, which starts anew with the host
);

-- Who holds which lease: the name of a locked file beside this one.
CREATE TABLE IF NOT EXISTS holder (
    lease INTEGER PRIMARY KEY,
    token TEXT NOT NULL
);

-- Which keys vanish with which lease.
CREATE TABLE IF NOT EXISTS held (
    key   TEXT PRIMARY KEY,
    lease INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS held_by ON held (lease);
