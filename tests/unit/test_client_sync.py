"""The client for programs without asyncio."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from querator import errors
from querator.client import Client
from querator.sync_client import SyncClient
from tests.unit.client_double import OK, ServerDouble, produced, serve_double


@pytest.fixture
def double() -> Iterator[ServerDouble]:
    """A server on a loop in another thread, as a program without asyncio sees it."""
    ready: list[ServerDouble] = []
    is_up, is_over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serve_double() as server:
            server.on("queue.produce", produced)
            ready.append(server)
            is_up.set()
            await asyncio.to_thread(is_over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert is_up.wait(30)
    yield ready[0]
    is_over.set()
    thread.join()


def test_calls_block_until_answered(double: ServerDouble) -> None:
    """A call returns what the asyncio client returns, and raises what it raises."""
    double.script("queue.complete", [errors.NotLeased("a")])
    with SyncClient(double.url) as client:
        assert client.produce("mail", "x").ids == ["id-of-x"]
        with pytest.raises(errors.NotLeased):
            client.complete("mail", 0, ["a"])


def test_every_method_is_there() -> None:
    """Whatever the asyncio client offers, this one offers under the same name, with the same arguments."""
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if name.startswith("_") or name in {"produce_wire", "consume"}:  # the consumer is for asyncio alone
            continue
        ours = getattr(SyncClient, name)
        if inspect.iscoroutinefunction(method) and name != "close":
            assert ours._method is method
        else:
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(method).parameters)


def test_iterators_are_plain(double: ServerDouble) -> None:
    """Pages are followed without asyncio."""
    double.on("queues.list", lambda _: {"items": [{"queue_name": "a"}, {"queue_name": "b"}]})
    with SyncClient(double.url) as client:
        assert [queue.queue_name for queue in client.iter_queues()] == ["a", "b"]


def test_threads_share_a_producer(double: ServerDouble) -> None:
    """What many threads produce one by one shares requests, and each thread gets its own id."""
    names = [f"{number:03d}" for number in range(64)]
    with (
        SyncClient(double.url) as client,
        client.producer("mail", linger="20ms") as producer,
        ThreadPoolExecutor(16) as threads,
    ):
        assert list(threads.map(producer.produce, names)) == [f"id-of-{name}" for name in names]
        assert producer.submit("later").result(30) == "id-of-later"
    assert len(double.asked["queue.produce"]) < len(names)


def test_closing_ends_the_thread(double: ServerDouble) -> None:
    """After closing, which may be done twice, the thread is gone and calls say why they fail."""
    double.on("queue.reload", lambda _: OK)
    client = SyncClient(double.url)
    client.reload("mail")
    client.close()
    client.close()
    assert not any(thread.name == "querator-client" for thread in threading.enumerate())
    with pytest.raises(RuntimeError, match="closed"):
        client.reload("mail")
