"""What callers of the client library see of a real cluster: nothing of its restarts, and all of its items."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from querator import Client
from tests.realcluster.cluster import NAMES, SPREAD, Cluster, crew_on
from tests.realcluster.instance import PATIENCE_S
from tests.realcluster.verdict import SEED, Tell


class Traffic:
    """Producers and consumers that use the library as anybody would. An error that reaches them ends the test."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.produced: Counter[str] = Counter()
        self.completed: Counter[str] = Counter()
        self.redelivered = 0
        self.going_home = False

    def client(self, number: int) -> Client:
        """Each begins at another instance."""
        urls = [each.url for each in self._cluster.instances]
        first = number % len(urls)
        return Client(*urls[first:], *urls[:first], client_id=f"client-{number}")

    async def produce(self, number: int) -> None:
        async with self.client(number) as client:
            sent = 0
            while not self.going_home:
                texts = [f"{number}-{sent + offset}" for offset in range(5)]
                await client.produce(SPREAD.queue, texts)
                self.produced.update(texts)
                sent += len(texts)

    async def consume(self, number: int) -> None:
        async with self.client(number) as client:
            while not self.going_home or self.completed.total() < self.produced.total():
                batch = await client.reserve(SPREAD.queue, 20, timeout="500ms", lease_timeout="30s")
                texts = [item.text for item in batch]
                self.redelivered += sum(item.attempts > 1 for item in batch)
                await client.complete(batch)
                self.completed.update(texts)


@pytest.mark.slow
async def test_a_rolling_restart_shows_no_error_to_any_caller(cluster: Cluster, tell: Tell) -> None:
    """Each instance in turn is told to stop and started again under load: all calls succeed, and each item is done once."""
    async with crew_on(cluster, SEED, [SPREAD]):
        pass
    traffic = Traffic(cluster)
    async with asyncio.timeout(3 * PATIENCE_S), asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(traffic.produce(number))
            group.create_task(traffic.consume(10 + number))
        for each in cluster.instances:
            assert await each.stop() == 0
            await cluster.until_spread(over=[name for name in NAMES if name != each.name])
            await each.start()
            await cluster.until_spread()
        traffic.going_home = True
    assert traffic.completed == traffic.produced
    tell(f"rolling restart: {traffic.produced.total()} items, {traffic.redelivered} delivered again, no error")


@pytest.mark.slow
async def test_one_consumer_at_one_instance_drains_what_lies_on_all(cluster: Cluster) -> None:
    """Also what is produced at the others while it waits."""
    async with crew_on(cluster, SEED, [SPREAD]):
        pass
    clients = [Client(each.url, direct=False) for each in cluster.instances]
    consumer, *producers = clients
    seen: Counter[str] = Counter()
    wanted: Counter[str] = Counter()

    async def drain() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while seen.total() < wanted.total():
                batch = await consumer.reserve(SPREAD.queue, 10)
                seen.update(item.text for item in batch)
                await consumer.complete(batch)

    try:
        for number, producer in enumerate(clients):
            texts = [f"{number}-{each}" for each in range(24)]
            wanted.update(texts)
            for text in texts:
                await producer.produce(SPREAD.queue, text)
        await drain()
        for number, producer in enumerate(producers * 3):
            wanted[f"later-{number}"] += 1
            waiting = asyncio.create_task(drain())
            await producer.produce(SPREAD.queue, f"later-{number}")
            await waiting
        assert seen == wanted
    finally:
        for client in clients:
            await client.close()
