"""The apparatus proved on PostgreSQL: a server with a planted bug is found out once the database crashes under it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.postgres_server import Postgres
from tests.crash.buggy import program, too_early, without_doubt
from tests.crash.client import Client
from tests.crash.database import postgres
from tests.crash.load import LEASE_MS, Crew, crew_of
from tests.crash.server import PATIENCE_S, server_in
from tests.history.checker import Report
from tests.history.events import QueueFacts
from tests.schemas import new_schema

QUEUE = QueueFacts(queue="mail", partitions=6, lease_timeout_ms=LEASE_MS)
PRODUCERS = 6
MOST_CRASHES = 50
# What the server logs of a partition that turns out to be ahead of it, and never opens again.
NOTICED = "logical queue task failed"


@asynccontextmanager
async def crew_on(database: Postgres, folder: Path, bug: str) -> AsyncIterator[Crew]:
    storage = [postgres(database, new_schema())]
    async with server_in(folder, storage, program(bug)) as server, crew_of(server, seed=5, queues=[QUEUE]) as crew:
        await server.start()
        await crew.create_queues()
        yield crew


@asynccontextmanager
async def load_on(crew: Crew) -> AsyncIterator[None]:
    """Produces alone, whose callers all wait: what a crash leaves in doubt is one of them."""
    enough = asyncio.Event()

    async def produce(client: Client) -> None:
        while not enough.is_set():
            await client.produce(QUEUE.queue, 5, timeout_ms=2000)

    async with asyncio.TaskGroup() as group:
        for number in range(PRODUCERS):
            group.create_task(produce(crew.client(f"p{number}")))
        try:
            yield
        finally:
            enough.set()


async def crash_under_load(crew: Crew, database: Postgres) -> None:
    told = len(crew.events)
    async with asyncio.timeout(PATIENCE_S):
        while len(crew.events) < told + 20 * PRODUCERS:
            await asyncio.sleep(0.01)
    await asyncio.to_thread(database.restart_immediate)


async def until_all_came_back(crew: Crew) -> int:
    """Until every partition is open again, but for those that cannot be any more; returns how many these are."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            noticed = crew.server.log.read_text().count(NOTICED)
            answer = await crew.client("control").post("queues.info", {"queue_name": QUEUE.queue})
            states = [partition["state"] for partition in answer.body["partitions"]]
            if states.count("available") == len(states) - noticed:
                return noticed
            await asyncio.sleep(0.05)


async def report_after_restart(crew: Crew) -> Report:
    """What is stored is all that counts."""
    await crew.server.kill()
    await crew.server.start()
    await crew.drain()
    return crew.check()


@pytest.mark.slow
async def test_a_server_that_has_no_doubts_is_found_out(tmp_path: Path, database: Postgres) -> None:
    """Items that were stored again elsewhere, because nobody knew that they were stored, are reported."""
    async with crew_on(database, tmp_path, without_doubt.__name__) as crew:
        async with load_on(crew):
            for _ in range(MOST_CRASHES):
                await crash_under_load(crew, database)
                if await until_all_came_back(crew):
                    break
        report = await report_after_restart(crew)
    assert report.kinds() & {"handed out twice as one attempt", "refused and yet there"}


@pytest.mark.slow
async def test_a_server_that_answers_before_the_commit_is_found_out(tmp_path: Path, database: Postgres) -> None:
    """Items whose produce was answered 200, and whose commit the crash took away, are reported as lost."""
    async with crew_on(database, tmp_path, too_early.__name__) as crew:
        async with load_on(crew):
            await crash_under_load(crew, database)
        report = await report_after_restart(crew)
    assert "lost" in report.kinds()
