"""The limits on PostgreSQL: the same batches written by bare loops, with no server and no HTTP.

"commit function" calls the function that our storage calls, with what it would write for each batch. "row functions"
keeps each item as a row of its own, through functions that take arrays. In both, every connection has tables of its
own and knows what is in them, as the owner of a partition does: neither needs locks, and neither reads anything.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Protocol

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement

from bench.measure import Counts, Load, Window
from querator import bits
from querator.items import NEVER_MS, BlockBody, Item, encode_block
from querator.records import LEASE, LeaseRecord, Summary, encode, key
from storage.postgres import PostgresBackend
from storage.postgres_connector import Connector
from storage.postgres_options import PostgresOptions
from storage.postgres_schema import SQL
from storage.statements import fill_uid

_EPOCH = 1
_DEADLINE_MS = 1_800_000_000_000
_FIRST_BLOCK = _DEADLINE_MS << 20  # as long as a real one, so that what names it is as long too

_ROW_TABLE = """
CREATE TABLE row_{uid} (id bigint PRIMARY KEY, lease_deadline bigint NOT NULL, payload bytea NOT NULL)
WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE FUNCTION produce_{uid}(ids bigint[], payloads bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO row_{uid} (id, lease_deadline, payload)
    SELECT new.id, 0, new.payload FROM unnest(ids, payloads) AS new (id, payload);
END $$;
CREATE FUNCTION reserve_{uid}(ids bigint[], deadline bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE row_{uid} AS r SET lease_deadline = deadline FROM unnest(ids) AS taken (id) WHERE r.id = taken.id;
END $$;
CREATE FUNCTION complete_{uid}(ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM row_{uid} AS r USING unnest(ids) AS done (id) WHERE r.id = done.id;
END $$;
"""


class Lane(Protocol):
    """One connection with tables of its own."""

    async def produce(self) -> None: ...
    async def reserve(self) -> None: ...
    async def complete(self) -> None: ...
    async def left(self) -> int: ...


class CommitLane:
    """Three commits of a batch: its block; a lease record; both removed. Each with fencing, number and summary."""

    def __init__(self, connection: asyncpg.Connection, uid: int, payloads: list[bytes]) -> None:
        self._connection = connection
        self._uid = uid
        self._count = len(payloads)
        self._data = encode_block(BlockBody(NEVER_MS, [Item(payload) for payload in payloads]))
        self._block = _FIRST_BLOCK
        self._number = 0

    async def open(self) -> None:
        row = await self._connection.fetchrow(SQL["partition_open"], self._uid, _EPOCH)
        assert row is not None
        self._place = row["place"]
        self._opened = row["opened"]
        self._commit: PreparedStatement = await self._connection.prepare(fill_uid(SQL["commit"], self._uid))

    async def produce(self) -> None:
        self._block += 1
        await self._write(self._count, None, None, [self._block], [self._data], None, None)

    async def reserve(self) -> None:
        slots = bits.to_bytes(bits.span(0, self._count))
        lease = encode([LeaseRecord("bench-client-0", _DEADLINE_MS, [(self._block, self._count, slots)])])
        await self._write(self._count, None, None, None, None, [key(LEASE, self._block)], [lease])

    async def complete(self) -> None:
        await self._write(0, [self._block], [key(LEASE, self._block)], None, None, None, None)

    async def left(self) -> int:
        blocks = await self._connection.fetch(fill_uid(SQL["block_scan"], self._uid), 0, 2**62, 2**31)
        return len(blocks) * self._count

    async def _write(self, items: int, *written: object) -> None:
        self._number += 1
        summary = encode(
            Summary(
                last_block_id=self._block,
                head_block_id=self._block,
                sequence=self._block,
                items=items,
                ready_at_sum=_DEADLINE_MS * items,
            )
        )
        self._place = await self._commit.fetchval(self._place, _EPOCH, self._opened, self._number, summary, *written)


class RowLane:
    """Three calls of a batch: insert its rows; update them; delete them. No fencing, which only helps it."""

    def __init__(self, connection: asyncpg.Connection, uid: int, payloads: list[bytes]) -> None:
        self._connection = connection
        self._uid = uid
        self._payloads = payloads
        self._ids = range(0)

    async def open(self) -> None:
        await self._connection.execute(fill_uid(_ROW_TABLE, self._uid))
        prepare = self._connection.prepare
        self._produce = await prepare(fill_uid("SELECT produce_{uid}($1, $2)", self._uid))
        self._reserve = await prepare(fill_uid("SELECT reserve_{uid}($1, $2)", self._uid))
        self._complete = await prepare(fill_uid("SELECT complete_{uid}($1)", self._uid))

    async def produce(self) -> None:
        self._ids = range(self._ids.stop, self._ids.stop + len(self._payloads))
        await self._produce.fetchval(self._ids, self._payloads)

    async def reserve(self) -> None:
        await self._reserve.fetchval(self._ids, _DEADLINE_MS)

    async def complete(self) -> None:
        await self._complete.fetchval(self._ids)

    async def left(self) -> int:
        return int(await self._connection.fetchval(fill_uid("SELECT count(*) FROM row_{uid}", self._uid)))


class PostgresLimit:
    """The driver of both: as many lanes side by side as the load has clients, in a schema of their own."""

    def __init__(self, load: Load, kind: type[CommitLane | RowLane]) -> None:
        source = random.Random(load.first_client)
        self._load = load
        self._kind = kind
        self._payloads = [source.randbytes(load.payload_bytes) for _ in range(load.batch)]
        self._options = PostgresOptions(dsn=load.address, schema=load.queue_name.replace("-", "_"))
        self._connections: list[asyncpg.Connection] = []
        self._lanes: list[CommitLane | RowLane] = []

    async def connect(self) -> None:
        """The tables are those that our storage makes, and the sessions are set up as it does."""
        backend = PostgresBackend(name="limit", options=self._options)
        connector = Connector(self._options)
        for uid in range(1, self._load.clients + 1):
            await backend.create(uid)
            connection = await connector.connect()
            self._connections.append(connection)
            lane = self._kind(connection, uid, self._payloads)
            await lane.open()
            self._lanes.append(lane)
        await backend.close()

    async def run(self, window: Window, counts: Counts) -> None:
        await asyncio.sleep(max(0.0, window.start - time.monotonic()))
        await asyncio.gather(*[self._loop(lane, window, counts) for lane in self._lanes])
        if left := sum([await lane.left() for lane in self._lanes]):
            raise RuntimeError(f"{left} items are left in the tables of the bare loop")

    async def _loop(self, lane: Lane, window: Window, counts: Counts) -> None:
        latencies = {call: counts.latency(call) for call in ("produce", "reserve", "complete")}
        while (began := time.monotonic()) < window.measure_until:
            await lane.produce()
            counts.produced += self._load.batch
            produced = time.monotonic()
            await lane.reserve()
            reserved = time.monotonic()
            await lane.complete()
            counts.completed += self._load.batch
            latencies["produce"].append(produced - began)
            latencies["reserve"].append(reserved - produced)
            latencies["complete"].append(time.monotonic() - reserved)

    async def close(self) -> None:
        await self._connections[0].execute(f"DROP SCHEMA {self._options.schema} CASCADE")
        for connection in self._connections:
            await connection.close()
