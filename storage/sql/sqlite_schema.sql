-- The tables of a new file. The tables of each partition are made when it is created (sqlite_statements.sql).
CREATE TABLE querator_file (
    version INTEGER NOT NULL,  -- of this schema; a file with a higher one is refused
    settled INTEGER NOT NULL   -- grows when a failed COMMIT is followed by one that surely takes its place
);

CREATE TABLE partition (
    uid INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,    -- the fencing token of the present owner
    number INTEGER NOT NULL,   -- of the last commit
    summary BLOB NOT NULL,
    opened INTEGER NOT NULL    -- how often; changes at each open, so that opening always writes
);

INSERT INTO querator_file (version, settled) VALUES (1, 0);
