-- What is made for one partition. {uid} stands for its integer, and nothing else is filled in.
-- Blocks up to a page stay in the row; larger ones are stored beside it. They are not compressed: a
-- client may compress what it sends. The dead rows of a queue are all it leaves, so vacuum comes by their number and does not dawdle.
CREATE TABLE block_{uid} (id bigint PRIMARY KEY CHECK (id > 0), data bytea NOT NULL)
WITH (
    toast_tuple_target = 8160,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE block_{uid} ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE record_{uid} (key bytea PRIMARY KEY, value bytea NOT NULL)
WITH (
    fillfactor = 70,
    toast_tuple_target = 8160,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE record_{uid} ALTER COLUMN value SET STORAGE EXTERNAL;

-- One round trip: fencing, number and summary, removals, then writes. A function for each partition, since the plans of
-- statements that are written out are kept, and those of EXECUTE are made anew in each call.
-- The owner passes the place (ctid) of the partition's row that the last call returned. It is found there at once,
-- however many dead versions of the row a snapshot beside us keeps alive.
CREATE FUNCTION commit_{uid}(
    place tid,
    our_epoch bigint,
    our_opened bigint,
    new_number bigint,
    new_summary bytea,
    dropped_blocks bigint[],
    deletes bytea[],
    block_ids bigint[],
    block_data bytea[],
    put_keys bytea[],
    put_values bytea[]
) RETURNS tid LANGUAGE plpgsql AS $$
DECLARE
    new_place tid;
BEGIN
    UPDATE partition AS p SET number = new_number, summary = new_summary
    WHERE p.ctid = place AND p.uid = {uid} AND p.opened = our_opened AND p.number = new_number - 1
    RETURNING p.ctid INTO new_place;
    IF NOT FOUND THEN
        -- Something has rewritten the table (VACUUM FULL, CLUSTER), or the commit is to be refused.
        UPDATE partition AS p SET number = new_number, summary = new_summary
        WHERE p.uid = {uid} AND p.opened = our_opened AND p.number = new_number - 1
        RETURNING p.ctid INTO new_place;
        IF NOT FOUND THEN
            PERFORM refuse_commit({uid}, our_epoch, our_opened, new_number);
        END IF;
    END IF;
    IF dropped_blocks IS NOT NULL THEN
        DELETE FROM block_{uid} WHERE id = ANY (dropped_blocks);
    END IF;
    IF deletes IS NOT NULL THEN
        DELETE FROM record_{uid} WHERE key = ANY (deletes);
    END IF;
    IF block_ids IS NOT NULL THEN
        INSERT INTO block_{uid} (id, data) SELECT * FROM unnest(block_ids, block_data);
    END IF;
    IF put_keys IS NOT NULL THEN
        INSERT INTO record_{uid} (key, value) SELECT * FROM unnest(put_keys, put_values)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value;
    END IF;
    RETURN new_place;
END
$$;

INSERT INTO partition (uid, epoch, opened, number, summary) VALUES ({uid}, 0, 0, 0, '');
