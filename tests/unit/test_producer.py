"""The batching producer: what goes into one request, who gets which answer, and that nothing grows without bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import chain
from typing import Any

import pytest

from querator import errors
from querator.client import Client
from tests.unit.client_double import QUICK, Break, ServerDouble, produced, serve_double


@pytest.fixture
async def double() -> AsyncIterator[ServerDouble]:
    async with serve_double() as double:
        double.on("queue.produce", produced)
        yield double


@pytest.fixture
async def client(double: ServerDouble) -> AsyncIterator[Client]:
    async with Client(double.url, timeout=20, backoff=QUICK) as client:
        yield client


def texts(double: ServerDouble) -> list[list[str]]:
    return [[item["utf8"] for item in asked["items"]] for asked in double.asked["queue.produce"]]


async def test_single_produces_share_requests(double: ServerDouble, client: Client) -> None:
    """Many concurrent produces become few requests, each caller gets its own id, and order is kept."""
    names = [f"{number:03d}" for number in range(500)]
    async with client.producer("mail", max_items=100, linger="1s", max_requests=1) as producer:
        ids = await asyncio.gather(*(producer.produce(name) for name in names))
    assert ids == [f"id-of-{name}" for name in names]
    requests = texts(double)
    assert [len(request) for request in requests] == [100] * 5
    assert list(chain(*requests)) == names


async def test_a_lone_item_leaves_after_the_linger(double: ServerDouble, client: Client) -> None:
    """An item that finds no company is sent by itself when the linger is over."""
    async with client.producer("mail", linger="1ms") as producer:
        assert await producer.produce("x") == "id-of-x"
    assert texts(double) == [["x"]]


async def test_leaving_sends_what_waits(double: ServerDouble, client: Client) -> None:
    """Closing does not wait for the linger, and takes nothing more."""
    async with client.producer("mail", linger="1h") as producer:
        waiting = [asyncio.create_task(producer.produce(name)) for name in "abc"]
        await asyncio.sleep(0)
    assert await asyncio.gather(*waiting) == ["id-of-a", "id-of-b", "id-of-c"]
    assert texts(double) == [["a", "b", "c"]]
    with pytest.raises(errors.RequestFailed, match="producer is closed"):
        await producer.produce("d")


async def test_requests_are_bounded_in_bytes(double: ServerDouble, client: Client) -> None:
    """A request holds no more payload than allowed, and an item that alone is larger is refused at once."""
    async with client.producer("mail", max_bytes=10, linger="1h", max_requests=1) as producer:
        waiting = [asyncio.create_task(producer.produce("x" * 4)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="too large"):
            await producer.produce("x" * 11)
    await asyncio.gather(*waiting)
    assert [len(request) for request in texts(double)] == [2, 2, 1]


async def test_what_waits_is_bounded(double: ServerDouble, client: Client) -> None:
    """No more than `max_waiting` items are held: the next produce waits until one is durable."""
    gate = asyncio.Event()

    async def answer(body: dict[str, Any]) -> dict[str, Any]:
        await gate.wait()
        return produced(body)

    double.on("queue.produce", answer)
    producer = client.producer("mail", max_waiting=3, max_items=1, linger="0s", max_requests=10)
    waiting = [asyncio.create_task(producer.produce(str(number))) for number in range(8)]
    held: list[int] = []

    async def release() -> None:
        while producer._room.locked() is False:
            await asyncio.sleep(0)
        held.append(len(producer._waiting) + len(producer._requests))
        gate.set()

    await asyncio.gather(release(), *waiting)
    await producer.close()
    assert held == [3]
    assert len(texts(double)) == 8


async def test_an_error_reaches_every_caller(double: ServerDouble, client: Client) -> None:
    """If a request fails, each of its callers gets the error, and the producer goes on."""
    double.script("queue.produce", [Break()])
    async with client.producer("mail", linger="1ms") as producer:
        outcomes = await asyncio.gather(*(producer.produce(name) for name in "abc"), return_exceptions=True)
        assert all(isinstance(outcome, errors.TransportError) for outcome in outcomes)
        double.on("queue.produce", produced)
        assert await producer.produce("d") == "id-of-d"


async def test_one_bad_item_harms_no_other(double: ServerDouble, client: Client) -> None:
    """An item that the server refuses fails alone; those that shared its request are stored, once."""
    stored: list[str] = []

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        names = [item["utf8"] for item in body["items"]]
        if "bad" in names:
            raise errors.InvalidRequest("kind is invalid", "no")
        stored.extend(names)
        return produced(body)

    double.on("queue.produce", answer)
    names = ["a", "b", "bad", "c", "d", "e", "f"]
    async with client.producer("mail", linger="5ms") as producer:
        outcomes = await asyncio.gather(*(producer.produce(name) for name in names), return_exceptions=True)
    assert isinstance(outcomes.pop(2), errors.InvalidRequest)
    assert outcomes == [f"id-of-{name}" for name in "abcdef"]
    assert sorted(stored) == list("abcdef")


async def test_a_missing_queue_is_asked_for_once(double: ServerDouble, client: Client) -> None:
    """That the queue does not exist is true of every item: nothing is halved."""
    double.script("queue.produce", [errors.NoSuchQueue("mail")])
    async with client.producer("mail", linger="5ms") as producer:
        outcomes = await asyncio.gather(*(producer.produce(name) for name in "abcd"), return_exceptions=True)
    assert all(isinstance(outcome, errors.NoSuchQueue) for outcome in outcomes)
    assert len(double.asked["queue.produce"]) == 1


async def test_a_cancelled_produce_is_taken_back(double: ServerDouble, client: Client) -> None:
    """An item whose caller went before it was sent is not sent."""
    async with client.producer("mail", linger="1h") as producer:
        gone, stays = (asyncio.create_task(producer.produce(name)) for name in ("gone", "stays"))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
    assert await stays == "id-of-stays"
    assert texts(double) == [["stays"]]


async def test_flush_waits_for_everything(double: ServerDouble, client: Client) -> None:
    """After a flush every item that was produced before it has been stored."""
    async with client.producer("mail", linger="1h", max_items=2) as producer:
        waiting = [asyncio.create_task(producer.produce(str(number))) for number in range(9)]
        await asyncio.sleep(0)
        await producer.flush()
        assert sorted(chain(*texts(double))) == [str(number) for number in range(9)]
        await asyncio.gather(*waiting)
