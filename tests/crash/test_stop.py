"""SIGTERM under load: the server finishes what runs, answers who waits, and loses nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.crash.client import Answer, Client, Unanswered
from tests.crash.load import QUEUES, Crew, crew_of
from tests.crash.server import PATIENCE_S, server_in
from tests.history.events import QueueFacts

STOPS = 5
IDLE = QueueFacts(queue="idle", partitions=4)


@pytest.mark.slow
async def test_nothing_is_lost_when_the_server_is_stopped_under_load(tmp_path: Path) -> None:
    """Every stop ends well by itself, and after all of them every acknowledged item is completed exactly once."""
    async with server_in(tmp_path) as server, crew_of(server, seed=1) as crew:
        await server.start()
        await crew.create_queues()
        async with crew.at_work(producers=4, consumers=6):
            for _ in range(STOPS):
                await crew.rounds(200)
                assert await server.stop() == 0
                await server.start()
        await crew.count()
        await crew.drain()
        report = crew.check()
    assert report.violations == [], "\n".join(map(str, report.violations[:20]))
    assert report.produced > STOPS


async def wait_long(client: Client) -> Answer | None:
    """A reserve that would wait for minutes; None if the connection was closed on it."""
    body = {"queue_name": IDLE.queue, "batch_size": 10, "client_id": "patient", "request_timeout": "10m"}
    try:
        return await client.post("queue.reserve", body)
    except Unanswered:
        return None


async def until_waiting(crew: Crew, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await crew.counts()).waiting < count:
            await asyncio.sleep(0.005)


@pytest.mark.slow
async def test_waiting_reserves_are_let_go_when_the_server_stops(tmp_path: Path) -> None:
    """A reserve that waits for an item does not hold up the stop: it is told to try again, or its connection is closed."""
    async with server_in(tmp_path) as server, crew_of(server, seed=2, queues=[*QUEUES, IDLE]) as crew:
        await server.start()
        await crew.create_queues()
        waiting = [asyncio.create_task(wait_long(crew.client(f"w{number}"))) for number in range(20)]
        try:
            await until_waiting(crew, len(waiting))
            assert await server.stop() == 0
            async with asyncio.timeout(PATIENCE_S):
                answers = await asyncio.gather(*waiting)
        finally:
            for task in waiting:
                task.cancel()
    assert {answer.status for answer in answers if answer} <= {454}
