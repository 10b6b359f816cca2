"""The client and the producer against a real server: a process of its own, on SQLite."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from querator import Client, ProduceItem, SyncClient, errors, wire
from querator.clock import SystemClock
from querator.durations import to_instant
from tests.crash.server import Server, server_in


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with server_in(tmp_path) as server:
        await server.start()
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client(server.url, timeout="60s") as client:
        await client.create_queue("mail")
        yield client


async def test_an_item_goes_its_way(client: Client) -> None:
    """What is produced is reserved with every attribute as it was, and is gone once completed."""
    item = ProduceItem({"a": [1, "ü"]}, kind="note", reference="r-1")
    produced = await client.produce("mail", [item, b"\x00\xff"])
    batch = await client.reserve("mail", 10)
    assert (batch.partition, batch.ids) == (produced.partition, produced.ids)
    assert batch[0].json() == {"a": [1, "ü"]}
    assert (batch[0].encoding, batch[0].kind, batch[0].reference) == ("application/json", "note", "r-1")
    assert batch[1].payload == b"\x00\xff"
    assert batch[0].attempts == 1
    await client.complete(batch)
    assert not await client.reserve("mail", timeout="50ms")
    with pytest.raises(errors.NotLeased) as caught:
        await client.complete(batch)
    assert batch.ids[0] in caught.value.message


async def test_a_waiting_reserve_gets_what_comes(client: Client) -> None:
    """A reserve that waits is answered by the produce that comes later."""
    waiting = asyncio.create_task(client.reserve("mail", timeout="60s"))
    await _until_waiting(client)
    await client.produce("mail", "late")
    assert (await waiting)[0].text == "late"


async def _until_waiting(client: Client) -> None:
    async with asyncio.timeout(60):
        while not sum(queue.lease_waiting for queue in (await client.stats("mail")).logical_queues):
            await asyncio.sleep(0.01)


async def test_items_are_given_back_and_renewed(client: Client) -> None:
    """A retried item comes again with one attempt more, and a renewed lease has a later deadline."""
    await client.produce("mail", "x")
    first = await client.reserve("mail")
    await client.retry(first, at=to_instant(SystemClock().now_ms()))
    second = await client.reserve("mail")
    assert (second[0].text, second[0].attempts) == ("x", 2)
    assert await client.renew(second, lease_timeout="10m") > second[0].lease_deadline + timedelta(minutes=5)
    with pytest.raises(errors.NotLeased):
        await client.renew(first)


async def test_dead_items_go_to_the_dead_queue(client: Client) -> None:
    """An item that is rejected is found in the dead queue."""
    await client.create_queue("mail-dead")
    await client.update_queue("mail", dead_queue="mail-dead")
    await client.produce("mail", "poison")
    await client.retry(await client.reserve("mail"), dead=True)
    dead = await client.reserve("mail-dead", timeout="60s")
    assert dead[0].text == "poison"


async def test_queues_are_looked_after(client: Client) -> None:
    """Create, update, pause, clear, list, import and delete do what their names say."""
    await client.create_queue("a", requested_partitions=2, lease_timeout="90s")
    await client.update_queue("a", max_attempts=3)
    info = await client.queue_info("a")
    assert (info.lease_timeout, info.max_attempts, len(info.partitions)) == ("1m30s", 3, 2)
    assert [queue.queue_name async for queue in client.iter_queues(page=1)] == ["a", "mail"]
    await client.pause("a", produce=True)
    assert (await client.queue_info("a")).produce_paused
    await client.resume("a")
    await client.import_items("a", 1, [wire.StorageItem(payload=b"in", kind="k")])
    (item,) = [item async for item in client.iter_items("a", 1)]
    assert (item.payload, item.kind) == (b"in", "k")
    await client.delete_items("a", 1, item.id)
    assert not await client.list_items("a", 1)
    await client.produce("a", ProduceItem("later", enqueue_at=to_instant(SystemClock().now_ms()) + timedelta(hours=1)))
    places = [len(await client.list_scheduled("a", partition)) for partition in (0, 1)]
    assert sum(places) == 1
    with pytest.raises(errors.QueratorError, match="not empty"):
        await client.delete_queue("a")
    await client.clear("a", scheduled=True)
    await client.reload("a")
    await client.delete_queue("a")
    with pytest.raises(errors.NoSuchQueue):
        await client.stats("a")
    assert (await client.health()).status == "pass"


async def test_pages_meet_without_gap(client: Client) -> None:
    """All items of a partition are listed once and in order, whatever the page."""
    produced = await client.produce("mail", [str(number) for number in range(25)])
    for page in (1, 7, 24, 25, 100):
        listed = [item.payload.decode() async for item in client.iter_items("mail", produced.partition, page=page)]
        assert listed == [str(number) for number in range(25)]


async def test_the_producer_stores_each_item_once(client: Client) -> None:
    """A thousand concurrent single produces are all stored, once, each with its own id."""
    names = {f"item-{number}" for number in range(1000)}
    async with client.producer("mail", max_items=100) as producer:
        ids = await asyncio.gather(*(producer.produce(name) for name in names))
    assert len(set(ids)) == 1000
    seen: list[str] = []
    while batch := await client.reserve("mail", 1000, timeout="100ms"):
        seen += [item.text for item in batch]
        await client.complete(batch)
    assert sorted(seen) == sorted(names)


async def test_a_restart_is_survived(server: Server, client: Client) -> None:
    """What was durable before a stop is there after the start; the client finds it past an address that is dead."""
    await client.produce("mail", "kept")
    dead = server.url
    assert await server.stop() == 0
    await server.start()
    async with Client(dead, server.url, timeout="60s") as survivor:
        assert (await survivor.reserve("mail"))[0].text == "kept"


async def test_the_guides_first_steps_work(server: Server) -> None:
    """The first program of the guide runs as it stands there, but for the address."""
    guide = (Path(__file__).resolve().parents[2] / "docs/guides/client.md").read_text()
    found = re.search(r"## First steps\n\n```python\n(.*?)```", guide, re.DOTALL)
    assert found is not None
    program = found[1].replace("http://127.0.0.1:2319", server.url)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=PIPE)
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert (process.returncode, out) == (0, b"hello\n")


async def test_a_program_without_asyncio(server: Server) -> None:
    """The blocking client does the same round from a thread."""

    def round_() -> list[str]:
        with SyncClient(server.url, timeout="60s") as client:
            client.create_queue("plain")
            client.produce("plain", ["a", "b"])
            batch = client.reserve("plain", 2)
            client.complete(batch)
            return [item.text for item in batch]

    assert await asyncio.to_thread(round_) == ["a", "b"]
