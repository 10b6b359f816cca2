"""Coordination on one host: an SQLite file that the host's processes share."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import aiosqlite

from cluster.coordinator import CoordinationError, Entry

_BUSY_TIMEOUT_S = 10.0
_SCHEMA = files("cluster").joinpath("one_host.sql").read_text()


class OneHostCoordinator:
    """Made by `open`."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._writing = asyncio.Lock()  # a transaction belongs to the connection, not to the coroutine

    @classmethod
    async def open(cls, path: Path) -> OneHostCoordinator:
        connection = aiosqlite.connect(path, isolation_level=None, timeout=_BUSY_TIMEOUT_S)
        try:
            await connection
            await connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            await _close(connection)
            raise CoordinationError(f"{path.name} cannot be opened: {error}") from error
        return cls(connection)

    async def get(self, key: str) -> Entry | None:
        rows = await self._connection.execute_fetchall("SELECT key, value, revision FROM entry WHERE key = ?", (key,))
        return next((Entry(*row) for row in rows), None)

    async def list(self, prefix: str) -> list[Entry]:
        rows = await self._connection.execute_fetchall(
            "SELECT key, value, revision FROM entry WHERE key >= ? AND substr(key, 1, ?) = ? ORDER BY key",
            (prefix, len(prefix), prefix),
        )
        return [Entry(*row) for row in rows]

    async def transact(
        self, *, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Sequence[str] = ()
    ) -> int | None:
        try:
            return await asyncio.shield(self._in_turn(expected, puts, deletes))
        except sqlite3.Error as error:
            raise CoordinationError(str(error)) from error

    async def _in_turn(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Sequence[str]
    ) -> int | None:
        """Shielded together with its lock: a caller that is cancelled must not let the next one in halfway."""
        async with self._writing:
            return await self._transact(expected, puts, deletes)

    async def _transact(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Sequence[str]
    ) -> int | None:
        await self._connection.execute("BEGIN IMMEDIATE")
        try:
            revision = await self._write(expected, puts, deletes)
        except sqlite3.Error:
            await self._connection.execute("ROLLBACK")
            raise
        await self._connection.execute("COMMIT" if revision else "ROLLBACK")
        return revision

    async def _write(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Sequence[str]
    ) -> int | None:
        for key, revision in expected.items():
            entry = await self.get(key)
            if (entry.revision if entry else 0) != revision:
                return None
        rows = await self._connection.execute_fetchall("UPDATE revision SET last = last + 1 RETURNING last")
        revision = int(next(iter(rows))[0])
        await self._connection.executemany("DELETE FROM entry WHERE key = ?", [(key,) for key in deletes])
        await self._connection.executemany(
            "INSERT INTO entry (key, value, revision) VALUES (?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value, revision = excluded.revision",
            [(key, value, revision) for key, value in puts.items()],
        )
        return revision

    async def close(self) -> None:
        async with self._writing:  # one whose caller has gone may still run
            await _close(self._connection)


async def _close(connection: aiosqlite.Connection) -> None:
    await connection.close()
    # Its thread still touches the event loop after it has answered, and must not outlive it.
    connection._thread.join()  # noqa: SLF001 - there is no other way to wait for it
