"""Makes connections to PostgreSQL, ready for use; while there are none to be had, says so at once."""

from __future__ import annotations

import asyncio
from random import SystemRandom

import asyncpg

from querator.waist import StorageError
from storage.postgres_errors import DATABASE_ERRORS, storage_error
from storage.postgres_options import PostgresOptions
from storage.postgres_schema import SQL, migrate, read_migrations

_STATEMENTS = 1024  # that a connection keeps prepared; a partition has one for commits and a few for reads
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


class Connector:
    """After a failure there is a pause, which grows; calls within it fail with the reason, without trying."""

    def __init__(self, options: PostgresOptions) -> None:
        self.options = options
        self.failure: str = ""  # why the last attempt failed; empty if it did not
        self._migrations = read_migrations()
        self._migrated = False
        self._lock = asyncio.Lock()
        self._pause_s = 0.0
        self._not_before = 0.0
        self._random = SystemRandom()

    async def connect(self) -> asyncpg.Connection:
        async with self._lock:
            loop = asyncio.get_running_loop()
            if loop.time() < self._not_before:
                raise StorageError(self.failure)
            try:
                connection = await self._connect()
            except (*DATABASE_ERRORS, ValueError) as error:
                raise self._fail(storage_error(self.options, error)) from error
            except StorageError as error:
                raise self._fail(error) from error
            self.failure = ""
            self._pause_s = self._not_before = 0.0
            return connection

    async def _connect(self) -> asyncpg.Connection:
        async with asyncio.timeout(self.options.connect_timeout_s):
            connection = await asyncpg.connect(
                self.options.dsn,
                timeout=self.options.connect_timeout_s,
                statement_cache_size=_STATEMENTS,
                max_cached_statement_lifetime=0,
                server_settings={"application_name": "querator"},
            )
        try:
            async with asyncio.timeout(self.options.command_timeout_s):
                await self._prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _prepare(self, connection: asyncpg.Connection) -> None:
        timeout_ms = str(round(self.options.command_timeout_s * 1000))
        await connection.fetch(SQL["session"], self.options.schema, timeout_ms)
        if not self._migrated:
            await migrate(connection, self.options.schema, self._migrations)
            self._migrated = True

    def _fail(self, error: StorageError) -> StorageError:
        self.failure = str(error)
        self._pause_s = min(max(self._pause_s * 2, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        pause_s = self._pause_s * self._random.uniform(0.75, 1.25)
        self._not_before = asyncio.get_running_loop().time() + pause_s
        return error
