"""The client library on several instances: it finds the owners by itself, and goes on when they change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from querator.client import Client
from tests.cluster.sites import Sites, sites


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Sites]:
    async with sites(tmp_path, 3) as cluster:
        await cluster.create("mail", 6, 3)
        await cluster.create("one", 1, 1)
        yield cluster


async def test_a_client_of_one_instance_finds_the_owner(cluster: Sites) -> None:
    """Given the address of an instance that owns nothing, the client is soon answered by the owner itself."""
    owner, stranger = cluster.owner("one", 0), cluster.stranger("one")
    async with Client(stranger.address) as client:
        async with asyncio.timeout(30):
            while not await cluster.answered(owner, "queue.produce"):
                await client.produce("one", "x")
        before = await cluster.answered(stranger, "queue.produce")
        for _ in range(10):
            await client.produce("one", "x")
            batch = await client.reserve("one", 1)
            await client.complete(batch)
        assert await cluster.answered(stranger, "queue.produce") == before
        assert await cluster.answered(owner, "queue.complete") == 10


@pytest.mark.parametrize("direct", [True, False])
async def test_one_client_drains_what_is_spread_over_all(cluster: Sites, direct: bool) -> None:
    """Everything that is produced comes back once, wherever it lies, whether the client goes direct or is passed on."""
    wanted = {f"item {number}" for number in range(60)}
    async with Client(cluster[0].address, direct=direct) as client:
        for text in sorted(wanted):
            await client.produce("mail", text)
        for site in cluster.all:
            async with Client(site.address, direct=False) as other:
                await other.produce("mail", site.name)
        seen: list[str] = []
        while len(seen) < 63:
            batch = await client.reserve("mail", 10, timeout="20s")
            assert batch, "nothing may be hidden"
            seen += [item.text for item in batch]
            await client.complete(batch)
    assert sorted(seen) == sorted([*wanted, "a", "b", "c"])


@pytest.mark.parametrize("direct", [None, False])
async def test_a_redirecting_cluster_serves_the_client_too(tmp_path: Path, direct: bool | None) -> None:
    """The client follows redirects, and learns from them."""
    async with sites(tmp_path, 2, redirect=True) as cluster:
        await cluster.create("one", 1, 1)
        async with Client(cluster.stranger("one").address, direct=direct) as client:
            for _ in range(5):
                await client.produce("one", "x")
                await client.complete(await client.reserve("one"))
        assert await cluster.answered(cluster.owner("one", 0), "queue.complete") == 5


async def test_an_instance_that_stops_is_no_error(cluster: Sites) -> None:
    """While one instance after the other hands over and stops, the client reports no error, and nothing is lost."""
    produced: list[str] = []
    done: list[str] = []
    over = asyncio.Event()

    async def produce(client: Client) -> None:
        while not over.is_set():
            text = f"item {len(produced)}"
            await client.produce("mail", text)
            produced.append(text)

    async def consume(client: Client) -> None:
        while not (over.is_set() and set(done) >= set(produced)):
            batch = await client.reserve("mail", 5, timeout="500ms")
            await client.complete(batch)
            done.extend(item.text for item in batch)

    async with Client(cluster[0].address, cluster[1].address, direct=True, timeout=60) as client:
        tasks = [asyncio.create_task(work) for work in (produce(client), consume(client), consume(client))]

        async def work_on() -> None:
            enough = len(done) + 20
            await cluster.until(lambda: len(done) > enough or any(task.done() for task in tasks), "work is done")

        for site in (cluster[0], cluster[1]):
            await work_on()
            await cluster.stop(site)
        await work_on()
        over.set()
        await asyncio.gather(*tasks)
    assert sorted(done) == sorted(produced)
