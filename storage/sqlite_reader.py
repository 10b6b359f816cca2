"""Reads from an SQLite file, beside its writer."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiosqlite

from querator.waist import Missing, StorageError
from storage.sqlite_file import BUSY_TIMEOUT_S, PREPARED_STATEMENTS, READER_CACHE_KIB, file_uri, storage_error


class SqliteReader:
    """One connection that cannot write, opened when it is first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: aiosqlite.Connection | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def fetch(self, statement: str, parameters: Iterable[Any] = ()) -> list[Any]:
        try:
            connection = self._connection or await self._open()
            return list(await connection.execute_fetchall(statement, parameters))
        except (sqlite3.Error, OverflowError) as error:
            if str(error).startswith("no such table"):
                raise Missing(f"'{self._path}' has no such partition") from error
            raise storage_error(self._path, error) from error
        except ValueError as error:
            # aiosqlite says so if its connection was closed between the call and its turn.
            raise self._closed_error() from error

    async def close(self) -> None:
        self._closed = True
        async with self._opening:
            connection, self._connection = self._connection, None
            if connection is not None:
                await _close(connection)

    async def _open(self) -> aiosqlite.Connection:
        async with self._opening:
            if self._closed:
                raise self._closed_error()
            if self._connection is None:
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> aiosqlite.Connection:
        connection = aiosqlite.connect(
            file_uri(self._path, "rw"),
            uri=True,
            isolation_level=None,
            timeout=BUSY_TIMEOUT_S,
            cached_statements=PREPARED_STATEMENTS,
        )
        try:
            await connection
            await connection.execute_fetchall("PRAGMA query_only = ON")
            await connection.execute_fetchall(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
        except BaseException:
            await _close(connection)
            raise
        return connection

    def _closed_error(self) -> StorageError:
        return StorageError(f"'{self._path}' is closed")


async def _close(connection: aiosqlite.Connection) -> None:
    await connection.close()
    # Its thread still touches the event loop after it has answered, and must not outlive it.
    connection._thread.join()  # noqa: SLF001 - there is no other way to wait for it
