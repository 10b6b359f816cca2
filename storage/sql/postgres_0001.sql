-- needs: 1
-- The tables that all partitions share. Those of each partition are made when it is created (postgres_partition.sql).
CREATE TABLE partition (
    uid bigint PRIMARY KEY,
    epoch bigint NOT NULL,    -- the fencing token of the present owner
    opened bigint NOT NULL,   -- unique for each open; a commit of an earlier one is refused, also if the epoch is the same
    number bigint NOT NULL,   -- of the last commit
    summary bytea NOT NULL
)
-- Each commit writes a new version of its row. With room on the page it stays there, touches no index, and takes the
-- place of an older one. A truncation would lock out the commits of all partitions.
WITH (
    fillfactor = 10,
    vacuum_truncate = false,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE SEQUENCE opening AS bigint;

-- Says why a commit was not written. QR001: missing, QR002: fenced, QR003: refused.
CREATE FUNCTION refuse_commit(asked_uid bigint, asked_epoch bigint, asked_opened bigint, asked_number bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    stored record;
BEGIN
    SELECT p.epoch, p.opened, p.number INTO stored FROM partition AS p WHERE p.uid = asked_uid;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no partition %', asked_uid USING ERRCODE = 'QR001';
    ELSIF stored.epoch <> asked_epoch THEN
        RAISE EXCEPTION 'partition % has epoch %, and was opened with %', asked_uid, stored.epoch, asked_epoch
            USING ERRCODE = 'QR002';
    ELSIF stored.opened <> asked_opened THEN
        RAISE EXCEPTION 'partition % was opened again since', asked_uid USING ERRCODE = 'QR003';
    ELSE
        RAISE EXCEPTION 'commit % does not follow commit %', asked_number, stored.number USING ERRCODE = 'QR003';
    END IF;
END
$$;
