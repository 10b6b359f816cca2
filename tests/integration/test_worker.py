"""The worker against a real server."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from querator import Client, Reject, ReservedItem, RetryLater, Worker
from tests.crash.server import Server, server_in

PATIENCE_S = 60

PROGRAM = """
import asyncio, sys
from querator import Worker
worker = Worker(sys.argv[1])

@worker.handler("mail", concurrency=1, batch_size=3)
async def handle(item):
    print(item.text, flush=True)
    await asyncio.sleep(0.3)

worker.run()
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with server_in(tmp_path) as server:
        await server.start()
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client(server.url, timeout="60s") as client:
        await client.create_queue("mail-dead")
        await client.create_queue("mail", requested_partitions=2, dead_queue="mail-dead")
        yield client


@asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.serve())
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield
            worker.stop()
            await task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def held(client: Client, queue_name: str) -> int:
    stats = await client.stats(queue_name)
    return sum(one.total + one.scheduled for queue in stats.logical_queues for one in queue.partitions)


async def until_empty(client: Client, queue_name: str) -> None:
    while await held(client, queue_name):
        await asyncio.sleep(0.02)


async def test_every_item_is_handled_once(client: Client) -> None:
    """With nothing going wrong each item of both partitions is handled exactly once, and none is left."""
    seen: Counter[str] = Counter()
    worker = Worker(client, handle_signals=False)

    @worker.handler("mail", concurrency=20)
    async def handle(item: ReservedItem) -> None:
        seen[item.text] += 1

    for start in range(0, 500, 100):
        await client.produce("mail", [str(number) for number in range(start, start + 100)])
    async with serving(worker):
        await until_empty(client, "mail")
    assert seen == Counter(str(number) for number in range(500))


async def test_each_ending_of_a_handler(client: Client) -> None:
    """A failure is retried until it succeeds, a rejected item is found dead, a later one comes later."""
    seen: Counter[str] = Counter()
    worker = Worker(client, handle_signals=False)

    @worker.handler("mail")
    def handle(item: ReservedItem) -> None:
        seen[item.text] += 1
        if item.text == "poison":
            raise Reject("never")
        if item.attempts == 1 and item.text == "flaky":
            raise RuntimeError("once")
        if item.attempts == 1 and item.text == "later":
            raise RetryLater("50ms")

    await client.produce("mail", ["good", "flaky", "later", "poison"])
    async with serving(worker):
        await until_empty(client, "mail")
        dead = await client.reserve("mail-dead", timeout="60s")
    assert seen == {"good": 1, "flaky": 2, "later": 2, "poison": 1}
    assert [item.text for item in dead] == ["poison"]


async def test_work_longer_than_its_lease(client: Client) -> None:
    """An item whose work takes several times its lease is handed out once, since the lease is renewed."""
    seen: Counter[str] = Counter()
    worker = Worker(client, handle_signals=False)

    @worker.handler("mail", lease_timeout="2s", concurrency=2)
    async def handle(item: ReservedItem) -> None:
        seen[item.text] += 1
        await asyncio.sleep(5)  # the work itself

    await client.produce("mail", ["a", "b"])
    async with serving(worker):
        await until_empty(client, "mail")
    assert seen == {"a": 1, "b": 1}


async def test_a_worker_process_stops_on_sigterm(server: Server, client: Client) -> None:
    """SIGTERM lets the running handler end, gives the rest back at once, and the process ends well."""
    await client.produce("mail", ["a", "b", "c"])
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, server.url, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        assert await process.stdout.readline() == b"a\n"
        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
    assert (process.returncode, out) == (0, b""), err.decode()
    batch = await client.reserve("mail", 10, timeout="10s")
    assert sorted(item.text for item in batch) == ["b", "c"]
