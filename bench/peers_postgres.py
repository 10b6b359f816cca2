"""PostgreSQL with SKIP LOCKED, as a peer: what a client on asyncpg does. The server is in `bench.postgres_server`."""

from __future__ import annotations

import asyncio
import random
import time

import asyncpg

from bench.measure import Counts, Load, Window

_CREATE = """
CREATE TABLE {table} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lease_deadline timestamptz,
    payload bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX {table}_ready ON {table} (id) WHERE lease_deadline IS NULL;
"""
_PRODUCE = "INSERT INTO {table} (payload) SELECT unnest($1::bytea[])"
_RESERVE = """
UPDATE {table} SET lease_deadline = now() + interval '1 minute'
WHERE id IN (
    SELECT id FROM {table} WHERE lease_deadline IS NULL ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
)
RETURNING id, payload
"""
_COMPLETE = "DELETE FROM {table} WHERE id = ANY($1::bigint[])"


class PostgresCycle:
    """The driver: full cycles, all clients on one table of their own."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._table = load.queue_name.replace("-", "_")
        source = random.Random(load.first_client)
        self._payloads = [source.randbytes(load.payload_bytes) for _ in range(load.batch)]
        self._connections: list[asyncpg.Connection] = []

    def _sql(self, text: str) -> str:
        return text.format(table=self._table)

    async def connect(self) -> None:
        for _ in range(self._load.clients):
            self._connections.append(await asyncpg.connect(self._load.address))
        await self._connections[0].execute(self._sql(_CREATE))

    async def run(self, window: Window, counts: Counts) -> None:
        await asyncio.sleep(max(0.0, window.start - time.monotonic()))
        await asyncio.gather(*[self._loop(connection, window, counts) for connection in self._connections])
        await self._drain(counts)
        left = await self._connections[0].fetchval(self._sql("SELECT count(*) FROM {table}"))
        if left:
            raise RuntimeError(f"{left} items are left in PostgreSQL's table")

    async def _loop(self, connection: asyncpg.Connection, window: Window, counts: Counts) -> None:
        produce = await connection.prepare(self._sql(_PRODUCE))
        reserve = await connection.prepare(self._sql(_RESERVE))
        complete = await connection.prepare(self._sql(_COMPLETE))
        latencies = {call: counts.latency(call) for call in ("produce", "reserve", "complete")}
        batch = self._load.batch
        while (began := time.monotonic()) < window.measure_until:
            await produce.fetch(self._payloads)
            counts.produced += batch
            produced = time.monotonic()
            # Rows that others hold are skipped, so that a reserve may come back with nothing.
            while not (rows := await reserve.fetch(batch)):
                counts.retries += 1
            reserved = time.monotonic()
            await complete.fetch([row["id"] for row in rows])
            counts.completed += len(rows)
            latencies["produce"].append(produced - began)
            latencies["reserve"].append(reserved - produced)
            latencies["complete"].append(time.monotonic() - reserved)

    async def _drain(self, counts: Counts) -> None:
        """Skipped rows leave a rest behind."""
        connection = self._connections[0]
        while rows := await connection.fetch(self._sql(_RESERVE), self._load.batch):
            await connection.execute(self._sql(_COMPLETE), [row["id"] for row in rows])
            counts.completed += len(rows)

    async def close(self) -> None:
        await self._connections[0].execute(self._sql("DROP TABLE {table}"))
        for connection in self._connections:
            await connection.close()
