"""The PostgreSQL under a server: every way in which it goes away and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from bench.postgres_server import Postgres
from tests.crash.server import Backend

Outage = Callable[[Postgres], AbstractAsyncContextManager[None]]


def postgres(database: Postgres, schema: str) -> Backend:
    """A backend there. It gives up soon on a database that hangs, so that a test need not wait for that."""
    options = {"dsn": database.address, "schema": schema, "connect_timeout": "1s", "command_timeout": "2s"}
    return {"name": "pg", "driver": "postgres", "options": options}


@asynccontextmanager
async def stopped(database: Postgres) -> AsyncIterator[None]:
    """As `pg_ctl stop -m fast`: connections are told, transactions rolled back."""
    await asyncio.to_thread(database.stop)
    try:
        yield
    finally:
        await asyncio.to_thread(database.start)


@asynccontextmanager
async def crashed(database: Postgres) -> AsyncIterator[None]:
    """As `pg_ctl stop -m immediate`: connections break."""
    await asyncio.to_thread(database.crash)
    try:
        yield
    finally:
        await asyncio.to_thread(database.start)


@asynccontextmanager
async def hanging(database: Postgres) -> AsyncIterator[None]:
    """All of its processes stand still: connections are taken and kept, and nothing is ever answered."""
    postmaster = database.pid()
    os.kill(postmaster, signal.SIGSTOP)  # first, so that there are no new ones
    halted = [postmaster]
    try:
        for pid in _children(postmaster):
            os.kill(pid, signal.SIGSTOP)
            halted.append(pid)
        yield
    finally:
        for pid in reversed(halted):
            os.kill(pid, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
