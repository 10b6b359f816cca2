"""Connections to PostgreSQL, kept for further use, and the work that is done on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import asyncpg

from querator.waist import StorageError
from storage.postgres_connector import Connector
from storage.postgres_errors import DATABASE_ERRORS, ends_connection, storage_error
from storage.postgres_options import PostgresOptions

_Result = TypeVar("_Result")
_Work = Callable[[asyncpg.Connection], Awaitable[_Result]]
_Translate = Callable[[PostgresOptions, Exception], StorageError]

_CLOSE_TIMEOUT_S = 2.0


class PostgresPool:
    """Up to ``size`` connections. They are made when they are needed, and made again when they have broken."""

    def __init__(self, connector: Connector, size: int) -> None:
        self._connector = connector
        self._options = connector.options
        self._command_timeout_s = connector.options.command_timeout_s
        self._slots = asyncio.Semaphore(size)
        self._idle: list[asyncpg.Connection] = []
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    def submit(self, work: _Work[_Result], translate: _Translate = storage_error) -> asyncio.Task[_Result]:
        """Do some work on a connection. Once it has one it ends within the command timeout.

        Who awaits the task must shield it: a command that is cancelled would leave its connection in doubt.
        """
        if self._closed:
            raise StorageError(f"PostgreSQL at {self._options.address} is closed")
        return self._spawn(self._run(work, translate))

    async def fetch(self, statement: str, *arguments: object) -> list[Any]:
        task = self.submit(lambda connection: connection.fetch(statement, *arguments))
        return list(await asyncio.shield(task))

    async def close(self) -> None:
        """Do what was submitted, and let go of all connections."""
        self._closed = True
        while self._running:
            await asyncio.wait(self._running)
        while self._idle:
            await _close(self._idle.pop())

    def _spawn(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever submitted it may have been cancelled, and then nobody else looks

    async def _run(self, work: _Work[_Result], translate: _Translate) -> _Result:
        # Whoever is before us ends in time: if the database hangs, the first of us finds out and the rest fail at once.
        async with self._slots:
            connection = self._take() or await self._connector.connect()
            return await self._work(connection, work, translate)

    async def _work(self, connection: asyncpg.Connection, work: _Work[_Result], translate: _Translate) -> _Result:
        # Not a cancellation, with which asyncpg would ask the server to cancel too: the connection just ends.
        timer = asyncio.get_running_loop().call_later(self._command_timeout_s, self._give_up, connection)
        try:
            result = await work(connection)
        except StorageError:
            raise
        except Exception as error:  # asyncpg has errors of its own for a stream that breaks at an odd place
            if ends_connection(error):
                connection.terminate()
            raise translate(self._options, error) from error
        except asyncio.CancelledError:
            connection.terminate()
            raise
        finally:
            timer.cancel()
            if not connection.is_closed():
                self._idle.append(connection)
        return result

    def _give_up(self, connection: asyncpg.Connection) -> None:
        """End a connection on which nothing came in time, and those that idle: whoever took one might wait as long."""
        connection.terminate()
        while self._idle:
            self._idle.pop().terminate()

    def _take(self) -> asyncpg.Connection | None:
        # The one that was used last: it is the likeliest to have the statement prepared.
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None


async def _close(connection: asyncpg.Connection) -> None:
    try:
        await connection.close(timeout=_CLOSE_TIMEOUT_S)
    except DATABASE_ERRORS:
        connection.terminate()
