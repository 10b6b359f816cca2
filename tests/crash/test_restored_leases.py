"""Leases over several blocks, across `kill -9`: what a restart makes of their records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.load import crew_of
from tests.crash.server import server_in
from tests.history.events import QueueFacts

QUEUE = QueueFacts(queue="mail", partitions=1, lease_timeout_ms=600_000)  # longer than any test


@pytest.mark.slow
async def test_a_restored_lease_names_no_item_of_a_block_that_is_gone(tmp_path: Path) -> None:
    """A block that ends after a lease let go of its part of it does not come back with that lease's record."""
    async with server_in(tmp_path) as server, crew_of(server, seed=4, queues=[QUEUE]) as crew:
        await server.start()
        await crew.create_queues()
        one, other = crew.client("one"), crew.client("other")
        await one.produce(QUEUE.queue, 2)
        await one.produce(QUEUE.queue, 1)
        first = await one.reserve(QUEUE.queue, 1)  # of the first block
        second, third = await other.reserve(QUEUE.queue, 2)  # the rest of it, and the second block
        assert await other.complete([second]) == "ok"
        assert await one.complete(first) == "ok"  # ends the first block
        await server.kill()
        await server.start()
        assert await other.complete([second]) == "failed"
        assert await other.retry([third]) == "ok"
        await crew.drain()
    assert crew.check().violations == []
