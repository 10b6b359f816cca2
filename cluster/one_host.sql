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
