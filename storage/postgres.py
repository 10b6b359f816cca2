"""The PostgreSQL backend: partitions in one schema, each with a table of blocks, a table of records and a function.

What makes it fast and safe is in docs/adr/0006-partitions-on-postgresql.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg

from querator.waist import (
    MAX_BLOCK_ID,
    Batch,
    Fenced,
    Health,
    Missing,
    Opened,
    Record,
    StorageError,
    StoredBlock,
)
from storage.postgres_connector import Connector
from storage.postgres_errors import commit_error
from storage.postgres_options import PostgresOptions
from storage.postgres_pool import PostgresPool
from storage.postgres_schema import PARTITION, SQL
from storage.statements import fill_uid

_READERS = 4  # connections for reads, so that no commit waits behind one
_HEALTH_TIMEOUT_S = 2.0


class _Right(NamedTuple):
    """What an open gives: the right to commit until the next one."""

    epoch: int
    opened: int


class PostgresPartition:
    def __init__(self, uid: int, writers: PostgresPool, readers: PostgresPool) -> None:
        self._uid = uid
        self._writers = writers
        self._readers = readers
        self._commit = fill_uid(SQL["commit"], uid)
        self._right: _Right | None = None
        self._place: tuple[int, int] = (0, 0)  # where the partition's row was found last
        self._in_flight: asyncio.Task[None] | None = None
        self._closed = False

    async def open(self, epoch: int) -> Opened:
        self._check_not_closed()
        await self._settle()
        row = await asyncio.shield(self._writers.submit(lambda connection: self._open(connection, epoch)))
        self._right = _Right(epoch, row["opened"])
        self._place = row["place"]
        return Opened(row["number"], row["summary"])

    async def commit(self, batch: Batch) -> None:
        right = self._right
        if right is None or self._closed:
            raise StorageError(f"partition {self._uid} is {'closed' if self._closed else 'not open'}")
        task = self._writers.submit(lambda connection: self._write(connection, right, batch), commit_error)
        self._in_flight = task
        await asyncio.shield(task)

    async def scan_blocks(self, start: int, stop: int, limit: int, reverse: bool = False) -> list[StoredBlock]:
        # The bound above the largest block id does not fit into a bigint.
        bounds = max(start, 0), max(min(stop - 1, MAX_BLOCK_ID), -1)
        rows = await self._fetch("block_scan_reverse" if reverse else "block_scan", *bounds, limit)
        return [StoredBlock(block_id, data) for block_id, data in rows]

    async def scan(self, start: bytes, stop: bytes, limit: int, reverse: bool = False) -> list[Record]:
        rows = await self._fetch("record_scan_reverse" if reverse else "record_scan", start, stop, limit)
        return [Record(key, value) for key, value in rows]

    async def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return dict(await self._fetch("record_get", list(keys)))

    async def close(self) -> None:
        self._closed = True
        await self._settle()

    async def _fetch(self, name: str, *arguments: object) -> list[Any]:
        self._check_not_closed()
        return await self._readers.fetch(fill_uid(SQL[name], self._uid), *arguments)

    async def _open(self, connection: asyncpg.Connection, epoch: int) -> asyncpg.Record:
        """Waits for the row's lock, and so for a commit that the server is working on; refuses those that it gets later."""
        row = await connection.fetchrow(SQL["partition_open"], self._uid, epoch)
        if row is not None:
            return row
        stored = await connection.fetchval(SQL["partition_find"], self._uid)
        if stored is None:
            raise Missing(f"there is no partition {self._uid}")
        raise Fenced(f"partition {self._uid} was opened with epoch {stored}, which is above {epoch}")

    async def _write(self, connection: asyncpg.Connection, right: _Right, batch: Batch) -> None:
        blocks, puts = batch.blocks, batch.puts
        self._place = await connection.fetchval(
            self._commit,
            self._place,
            right.epoch,
            right.opened,
            batch.number,
            batch.summary,
            batch.dropped_blocks or None,
            batch.deletes or None,
            list(blocks) if blocks else None,
            list(blocks.values()) if blocks else None,
            list(puts) if puts else None,
            list(puts.values()) if puts else None,
        )

    async def _settle(self) -> None:
        """Wait for the commit in flight, whatever becomes of it."""
        if self._in_flight is not None:
            await asyncio.wait({self._in_flight})

    def _check_not_closed(self) -> None:
        if self._closed:
            raise StorageError(f"partition {self._uid} is closed")


class PostgresBackend:
    """Needs no database to be made: connections are made when they are needed. Several may share a schema."""

    driver = "postgres"

    def __init__(self, *, name: str, options: PostgresOptions, affinity: float = 1.0) -> None:
        self.name = name
        self.affinity = affinity
        connector = Connector(options)
        self._connector = connector
        self._writers = PostgresPool(connector, options.pool_size)
        self._readers = PostgresPool(connector, _READERS)
        self._probe: asyncio.Task[bool] | None = None

    async def create(self, partition: int) -> None:
        async def work(connection: asyncpg.Connection) -> None:
            async with connection.transaction():
                await connection.execute(SQL["partition_lock"], partition)
                if await connection.fetchval(SQL["partition_find"], partition) is None:
                    await connection.execute(fill_uid(PARTITION, partition))

        await asyncio.shield(self._writers.submit(work))

    async def drop(self, partition: int) -> None:
        async def work(connection: asyncpg.Connection) -> None:
            async with connection.transaction():
                await connection.execute(SQL["partition_lock"], partition)
                await connection.execute(fill_uid(SQL["partition_drop"], partition))

        await asyncio.shield(self._writers.submit(work))

    async def list(self) -> list[int]:
        return [uid for (uid,) in await self._readers.fetch(SQL["partition_list"])]

    def partition(self, partition: int) -> PostgresPartition:
        return PostgresPartition(partition, self._writers, self._readers)

    async def health(self) -> Health:
        """Asks the database, and answers within a moment, also if that does not."""
        try:
            if self._probe is None or self._probe.done():
                self._probe = self._readers.submit(lambda connection: connection.fetchval(SQL["alive"]))
            await asyncio.wait({self._probe}, timeout=_HEALTH_TIMEOUT_S)
            if not self._probe.done():
                return Health(ok=False, details=self._connector.failure or f"{self._where} does not answer")
            read_only = self._probe.result()
        except StorageError as error:
            return Health(ok=False, details=str(error))
        return Health(ok=not read_only, details=f"{self._where} is read-only" if read_only else "")

    async def close(self) -> None:
        await self._writers.close()
        await self._readers.close()

    @property
    def _where(self) -> str:
        return f"PostgreSQL at {self._connector.options.address}"
