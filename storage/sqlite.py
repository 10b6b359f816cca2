"""The SQLite backend: partitions in one file, each with a table of blocks and a table of records."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

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
from storage.sqlite_file import SQL, SYNCHRONOUS
from storage.sqlite_reader import SqliteReader
from storage.sqlite_writer import SqliteWriter
from storage.statements import fill_uid

_ADVANCE = SQL["partition_advance"]
_GET_WIDTH = 16  # how many keys the statement record_get takes
# Bounds how long the removal of a partition keeps its neighbours waiting at a time.
_CLEAR_BLOCKS = 64
_CLEAR_RECORDS = 1024
_BLOCK_TABLE = "block_"


class _Writes(NamedTuple):
    """The statements of one partition's commits."""

    block_put: str
    block_drop: str
    record_put: str
    record_delete: str


class SqlitePartition:
    def __init__(self, uid: int, writer: SqliteWriter, reader: SqliteReader) -> None:
        self._uid = uid
        self._writer = writer
        self._reader = reader
        self._writes = _Writes(*(fill_uid(SQL[name], uid) for name in _Writes._fields))
        self._epoch: int | None = None
        self._closed = False

    async def open(self, epoch: int) -> Opened:
        self._check_not_closed()
        opened = await self._writer.submit(_open_partition, self._uid, epoch)
        self._epoch = epoch
        return opened

    async def commit(self, batch: Batch) -> None:
        if self._epoch is None or self._closed:
            raise StorageError(f"partition {self._uid} is {'closed' if self._closed else 'not open'}")
        await self._writer.submit(_write_batch, self._writes, self._uid, self._epoch, batch)

    async def scan_blocks(self, start: int, stop: int, limit: int, reverse: bool = False) -> list[StoredBlock]:
        self._check_not_closed()
        statement = fill_uid(SQL["block_scan_reverse" if reverse else "block_scan"], self._uid)
        # SQLite's integers end at the largest block id, so that the bound above it cannot be given to it.
        rows = await self._reader.fetch(statement, (max(start, 0), min(stop - 1, MAX_BLOCK_ID), limit))
        return [StoredBlock(block_id, data) for block_id, data in rows]

    async def scan(self, start: bytes, stop: bytes, limit: int, reverse: bool = False) -> list[Record]:
        self._check_not_closed()
        statement = fill_uid(SQL["record_scan_reverse" if reverse else "record_scan"], self._uid)
        return [Record(key, value) for key, value in await self._reader.fetch(statement, (start, stop, limit))]

    async def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        self._check_not_closed()
        statement = fill_uid(SQL["record_get"], self._uid)
        found: dict[bytes, bytes] = {}
        for first in range(0, len(keys), _GET_WIDTH):
            some: list[bytes | None] = list(keys[first : first + _GET_WIDTH])
            some += [None] * (_GET_WIDTH - len(some))
            found.update(await self._reader.fetch(statement, some))
        return found

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._epoch is not None:
            # Jobs are done in order, so that this one ends after the commit in flight, whatever becomes of both.
            with suppress(StorageError):
                await self._writer.submit(_do_nothing)

    def _check_not_closed(self) -> None:
        if self._closed:
            raise StorageError(f"partition {self._uid} is closed")


class SqliteBackend:
    """Made by `open`. Several may have the same file open, in several processes; all of their commits are fenced."""

    driver = "sqlite"

    def __init__(self, *, name: str, path: Path, affinity: float = 1.0, synchronous: str = "full") -> None:
        if synchronous not in SYNCHRONOUS:
            raise ValueError(f"synchronous must be one of {', '.join(SYNCHRONOUS)}")
        self.name = name
        self.affinity = affinity
        self._writer = SqliteWriter(path, synchronous)
        self._reader = SqliteReader(path)

    @classmethod
    async def open(cls, *, name: str, path: Path, affinity: float = 1.0, synchronous: str = "full") -> SqliteBackend:
        """Open the file, and make it if it is not there."""
        backend = cls(name=name, path=path, affinity=affinity, synchronous=synchronous)
        await backend._writer.start()
        try:
            await backend._clear_remains()
        except BaseException:
            await backend.close()
            raise
        return backend

    async def create(self, partition: int) -> None:
        while not await self._writer.submit(_create_partition, partition):
            await self._clear(partition)

    async def drop(self, partition: int) -> None:
        await self._writer.submit(_remove_partition, partition)
        await self._clear(partition)

    async def list(self) -> list[int]:
        return [uid for (uid,) in await self._reader.fetch(SQL["partition_list"])]

    def partition(self, partition: int) -> SqlitePartition:
        return SqlitePartition(partition, self._writer, self._reader)

    async def health(self) -> Health:
        try:
            await self._reader.fetch(SQL["file_version"])
        except StorageError as error:
            return Health(ok=False, details=str(error))
        return Health(ok=not self._writer.failure, details=self._writer.failure)

    async def close(self) -> None:
        # The writer goes last: the last connection to a file copies the log into it.
        await self._reader.close()
        await self._writer.close()

    async def _clear(self, uid: int) -> None:
        """Remove what a dropped partition left, a little at a time."""
        while await self._writer.submit(_clear_some, uid):
            pass

    async def _clear_remains(self) -> None:
        """Finish the drops that a crash has interrupted."""
        for uid in await self._writer.submit(_list_remains):
            await self._clear(uid)


def _do_nothing(_: sqlite3.Connection) -> None:
    pass


def _write_batch(connection: sqlite3.Connection, writes: _Writes, uid: int, epoch: int, batch: Batch) -> None:
    if connection.execute(_ADVANCE, (batch.number, batch.summary, uid, epoch)).rowcount != 1:
        raise _refusal(connection, uid, epoch, batch.number)
    executemany = connection.executemany
    if batch.dropped_blocks:
        executemany(writes.block_drop, zip(batch.dropped_blocks))
    if batch.deletes:
        executemany(writes.record_delete, zip(batch.deletes))
    if batch.blocks:
        executemany(writes.block_put, batch.blocks.items())
    if batch.puts:
        executemany(writes.record_put, batch.puts.items())


def _refusal(connection: sqlite3.Connection, uid: int, epoch: int, number: int) -> StorageError:
    stored = _find(connection, uid)
    if stored.epoch != epoch:
        return Fenced(f"partition {uid} has epoch {stored.epoch}, and was opened with {epoch}")
    return StorageError(f"commit {number} does not follow commit {stored.number}")


class _Stored(NamedTuple):
    epoch: int
    number: int
    summary: bytes


def _find(connection: sqlite3.Connection, uid: int) -> _Stored:
    for row in connection.execute(SQL["partition_find"], (uid,)).fetchall():
        return _Stored(*row)
    raise Missing(f"there is no partition {uid}")


def _open_partition(connection: sqlite3.Connection, uid: int, epoch: int) -> Opened:
    stored = _find(connection, uid)
    if stored.epoch > epoch:
        raise Fenced(f"partition {uid} was opened with epoch {stored.epoch}, which is above {epoch}")
    connection.execute(SQL["partition_open"], (uid, epoch))
    return Opened(stored.number, stored.summary)


def _create_partition(connection: sqlite3.Connection, uid: int) -> bool:
    """Whether the partition exists now: not if an earlier one of its name left something that has to go first."""
    if connection.execute(SQL["partition_find"], (uid,)).fetchall():
        return True
    if _has_remains(connection, uid):
        return False
    connection.execute(fill_uid(SQL["block_table"], uid))
    connection.execute(fill_uid(SQL["record_table"], uid))
    connection.execute(SQL["partition_add"], (uid,))
    return True


def _remove_partition(connection: sqlite3.Connection, uid: int) -> None:
    connection.execute(SQL["partition_remove"], (uid,))


def _list_remains(connection: sqlite3.Connection) -> list[int]:
    tables = [name for (name,) in connection.execute(SQL["file_tables"]).fetchall()]
    uids = {int(name.removeprefix(_BLOCK_TABLE)) for name in tables if name.startswith(_BLOCK_TABLE)}
    return sorted(uids.difference(uid for (uid,) in connection.execute(SQL["partition_list"]).fetchall()))


def _has_remains(connection: sqlite3.Connection, uid: int) -> bool:
    if connection.execute(SQL["partition_find"], (uid,)).fetchall():
        return False
    return bool(connection.execute(SQL["file_table"], (f"{_BLOCK_TABLE}{uid}",)).fetchall())


def _clear_some(connection: sqlite3.Connection, uid: int) -> bool:
    """Remove a part of what a dropped partition left; whether there may be more."""
    if not _has_remains(connection, uid):
        return False
    if connection.execute(fill_uid(SQL["block_clear"], uid), (_CLEAR_BLOCKS,)).rowcount == _CLEAR_BLOCKS:
        return True
    if connection.execute(fill_uid(SQL["record_clear"], uid), (_CLEAR_RECORDS,)).rowcount == _CLEAR_RECORDS:
        return True
    connection.execute(fill_uid(SQL["block_table_drop"], uid))
    connection.execute(fill_uid(SQL["record_table_drop"], uid))
    return False
