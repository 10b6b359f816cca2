"""The whole apparatus proved: a server whose disk forgets commits that were answered is found out, each time.

What was committed since the last start is in SQLite's write-ahead log alone; emptied after a kill, it is as if the server
had answered before the commit was durable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.crash.load import Crew, crew_of
from tests.crash.server import server_in
from tests.history.events import QueueFacts

ITEMS = 30
QUEUE = QueueFacts(queue="mail", partitions=1, lease_timeout_ms=600_000)  # longer than any test


@asynccontextmanager
async def crew_with_queues(tmp_path: Path) -> AsyncIterator[Crew]:
    async with server_in(tmp_path) as server, crew_of(server, seed=3, queues=[QUEUE]) as crew:
        await server.start()
        await crew.create_queues()
        yield crew


async def remember(crew: Crew) -> None:
    """From here on nothing is durable: a clean stop puts everything into the database itself."""
    assert await crew.server.stop() == 0
    await crew.server.start()


async def forget(crew: Crew) -> None:
    await crew.server.kill()
    crew.server.forget_since_checkpoint()
    await crew.server.start()


@pytest.mark.slow
async def test_forgotten_produces_are_found(tmp_path: Path) -> None:
    """Items whose produce was answered 200 and then forgotten are reported as lost, every one."""
    async with crew_with_queues(tmp_path) as crew:
        client = crew.client("c")
        await client.produce(QUEUE.queue, ITEMS)
        await remember(crew)
        await client.produce(QUEUE.queue, ITEMS)
        await forget(crew)
        await crew.drain()
    violations = crew.check().violations
    assert [violation.kind for violation in violations] == ["lost"] * ITEMS
    assert {violation.tag for violation in violations} == {f"c-{ITEMS + number}" for number in range(1, ITEMS + 1)}


@pytest.mark.slow
async def test_forgotten_completes_are_found(tmp_path: Path) -> None:
    """Items whose complete was answered 200 and then forgotten are reported as they come back and are done again."""
    async with crew_with_queues(tmp_path) as crew:
        client = crew.client("c")
        await client.produce(QUEUE.queue, ITEMS)
        held = await client.reserve(QUEUE.queue, ITEMS)
        await remember(crew)
        assert await client.complete(held) == "ok"
        await forget(crew)
        assert await client.retry(held) == "ok"
        await crew.drain()
    report = crew.check()
    assert report.kinds() == {"completed and yet there", "completed twice", "one lease ended twice"}
    assert len(report.violations) == 3 * ITEMS


@pytest.mark.slow
async def test_forgotten_leases_are_found(tmp_path: Path) -> None:
    """Items that are handed out again under a lease that was forgotten are reported, though they are completed once."""
    async with crew_with_queues(tmp_path) as crew:
        client = crew.client("c")
        await client.produce(QUEUE.queue, ITEMS)
        await remember(crew)
        assert len(await client.reserve(QUEUE.queue, ITEMS)) == ITEMS
        await forget(crew)
        await crew.drain()
    report = crew.check()
    assert report.kinds() == {"handed out twice as one attempt"}
    assert len(report.violations) == ITEMS


@pytest.mark.slow
async def test_without_forgetting_nothing_is_found(tmp_path: Path) -> None:
    """The same steps with a kill and a whole log are clean: it is the forgetting that is found."""
    async with crew_with_queues(tmp_path) as crew:
        client = crew.client("c")
        await client.produce(QUEUE.queue, ITEMS)
        await remember(crew)
        held = await client.reserve(QUEUE.queue, ITEMS)
        assert await client.complete(held[: ITEMS // 2]) == "ok"
        await client.produce(QUEUE.queue, ITEMS)
        await crew.server.kill()
        await crew.server.start()
        assert await client.retry(held[: ITEMS // 2]) == "failed"
        assert await client.retry(held[ITEMS // 2 :]) == "ok"
        await crew.drain()
    assert crew.check().violations == []
