"""The Consume stream as a client of any language sees it: flow, calls, and every way in which it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from api.grpc_consume import MAX_UNACKNOWLEDGED
from querator.v1 import consume_pb2
from tests.api.conftest import Api, running_api
from tests.api.grpc_client import Grpc, Stream, eventually, grpc_to


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with running_api(tmp_path, grpc=True) as running:
        await running.ok("queues.create", queue_name="mail", lease_timeout="1h")
        yield running


@pytest.fixture
async def rpc(api: Api) -> AsyncIterator[Grpc]:
    async with grpc_to(api.server) as calls:
        yield calls


@pytest.fixture
async def stream(rpc: Grpc) -> AsyncIterator[Stream]:
    opened = rpc.consume()
    yield opened
    opened.call.cancel()


async def produce(api: Api, count: int) -> None:
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": str(number)} for number in range(count)])


async def counts(api: Api) -> tuple[int, int, int]:
    """How many items there are, how many of them are leased, and how many reserves wait."""
    [logical_queue] = (await api.router.queue_stats("mail")).logical_queues
    [partition] = logical_queue.partitions
    return partition.total, partition.leased, logical_queue.reserve_waiting


async def becomes(api: Api, total: int, leased: int, waiting: int) -> None:
    async def is_so() -> bool:
        return await counts(api) == (total, leased, waiting)

    await eventually(is_so)


async def roundtrip(stream: Stream, max_in_flight: int) -> None:
    """What was sent before this is known to have been looked at."""
    ack = await stream.answer(maxInFlight=max_in_flight)
    assert ack.outcome.code == 200


# Flow.


async def test_no_more_items_than_allowed_are_unanswered(api: Api, stream: Stream) -> None:
    """All items come, in order, and at no time more are unanswered than `max_in_flight`."""
    await produce(api, 50)
    await stream.open(maxInFlight=7, batchSize=3)
    answered = 0
    while answered < 50:
        expected = min(50, answered + 7)
        await stream.items_come(expected)
        await roundtrip(stream, 7)
        assert len(stream.items) == expected
        assert (await counts(api))[:2] == (50 - answered, expected - answered)
        step = min(1 + answered % 4, 50 - answered)
        await stream.complete(stream.items[answered : answered + step])
        answered += step
    assert [item.bytes for item in stream.items] == [b"%d" % number for number in range(50)]
    assert {item.attempts for item in stream.items} == {1}


async def test_a_message_holds_no_more_than_a_batch(api: Api, stream: Stream) -> None:
    """`batch_size` bounds the items of one message."""
    await produce(api, 10)
    await stream.open(maxInFlight=10, batchSize=4)
    sizes = []
    while len(stream.items) < 10:
        before = len(stream.items)
        assert await stream.read()
        sizes.append(len(stream.items) - before)
    assert max(sizes) == 4


async def test_the_bound_can_be_lowered_and_raised(api: Api, stream: Stream) -> None:
    """At 0 nothing comes, whatever gets ready; raised again, what waits comes."""
    await stream.open(maxInFlight=5)
    await becomes(api, 0, 0, 1)
    await roundtrip(stream, 0)
    await produce(api, 9)
    await roundtrip(stream, 0)
    assert stream.items == []
    await becomes(api, 9, 0, 0)
    await roundtrip(stream, 2)
    await stream.items_come(2)
    await roundtrip(stream, 2)
    assert len(stream.items) == 2
    await roundtrip(stream, 9)
    await stream.items_come(9)


async def test_items_of_an_earlier_stream_count(api: Api, rpc: Grpc, stream: Stream) -> None:
    """What a client says it holds fills its bound until it is answered, here or when its lease ends."""
    await produce(api, 5)
    first = rpc.consume()
    await first.open(maxInFlight=2)
    held = await first.items_come(2)
    first.call.cancel()
    ids = {"ids": [item.id for item in held], "leaseDeadline": held[0].leaseDeadline}
    await stream.open(maxInFlight=3, held=[ids])
    await stream.items_come(1)
    await roundtrip(stream, 3)
    assert len(stream.items) == 1
    await stream.complete(held)
    await stream.items_come(3)


async def test_forgotten_items_do_not_block(api: Api, stream: Stream) -> None:
    """An item that is never answered makes room when its lease ends, and comes again."""
    await produce(api, 1)
    await stream.open(maxInFlight=1, leaseTimeout="50ms")
    items = await stream.items_come(3)
    assert [item.attempts for item in items] == [1, 2, 3]


# Calls.


async def test_calls_on_the_stream(api: Api, stream: Stream) -> None:
    """Complete, retry and renew do what they do elsewhere; each is acknowledged, an error as itself."""
    await api.ok("queues.create", queue_name="dead")
    await api.ok("queues.update", queue_name="mail", dead_queue="dead")
    await produce(api, 4)
    await stream.open(maxInFlight=4)
    done, later, dead, kept = await stream.items_come(4)
    assert (await stream.answer(complete={"ids": [done.id]})).outcome.code == 200
    assert (
        await stream.answer(retry={"items": [{"id": later.id, "retryAt": {"seconds": 4_000_000_000}}]})
    ).outcome.code == 200
    assert (await stream.answer(retry={"items": [{"id": dead.id, "dead": True}]})).outcome.code == 200
    renewed = await stream.answer(renew={"ids": [kept.id], "leaseTimeout": "24h"})
    assert renewed.outcome.code == 200
    assert renewed.leaseDeadline.seconds > kept.leaseDeadline.seconds + 3600
    again = await stream.answer(complete={"ids": [kept.id, done.id]})
    assert again.outcome.message == f"item is not leased; '{done.id}' is not under a valid lease"
    assert (again.outcome.code, again.outcome.codeText) == (400, "Bad Request")
    [scheduled] = (await api.ok("storage/scheduled.list", queue_name="mail"))["items"]
    assert scheduled["payload"] == "MQ=="
    [died] = (await api.ok("queue.reserve", queue_name="dead", batch_size=1, client_id="c"))["items"]
    assert died["bytes"] == "Mg=="
    await stream.complete([kept])
    await becomes(api, 0, 0, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({}, "call is invalid; "),
        ({"complete": {}}, "ids is invalid; "),
        ({"complete": {"ids": ["x"], "queueName": "other"}}, "queue_name is invalid; this stream is of 'mail'"),
        ({"complete": {"ids": ["x"], "partition": 7}}, "partition is invalid; "),
        ({"retry": {"items": [{"id": "x", "retryAt": {"seconds": 2**50}}]}}, "body is invalid; "),
        ({"renew": {"ids": ["x"], "leaseTimeout": "soon"}}, "lease_timeout is invalid; "),
        ({"maxInFlight": -1}, "max_in_flight is invalid; "),
        ({"maxInFlight": 10_001}, "max_in_flight is invalid; "),
    ],
)
async def test_wrong_calls_are_refused_alone(stream: Stream, call: dict[str, Any], message: str) -> None:
    """The acknowledgement says what is wrong, and the stream goes on."""
    await stream.open()
    assert (await stream.answer(**call)).outcome.message.startswith(message)
    await roundtrip(stream, 10)


async def test_a_client_that_does_not_read_is_not_read(api: Api, stream: Stream) -> None:
    """Many calls in few messages: no more than a bound are under way, and each is acknowledged."""
    await stream.open()
    await roundtrip(stream, 10)
    stream.acks.clear()
    calls = [{"sequence": number, "complete": {"ids": ["x"]}} for number in range(1, 2001)]
    for start in range(0, 2000, 500):
        await stream.call.write(consume_pb2.ConsumeRequest(calls=calls[start : start + 500]))
    door = api.server._grpc_door
    assert door is not None
    [served] = door._streams
    while len(stream.acks) < 2000:
        assert len(served._pending) + len(served._acks) <= MAX_UNACKNOWLEDGED
        assert await stream.read()
    assert {ack.outcome.code for ack in stream.acks.values()} == {400}


async def test_calls_on_the_stream_are_counted(api: Api, stream: Stream) -> None:
    """Items that were pushed count as reserves, and calls as calls."""
    await produce(api, 2)
    await stream.open(maxInFlight=2)
    await stream.complete(await stream.items_come(2))
    metrics = (await api.send("/metrics", None, method="GET")).body.decode()
    assert 'querator_requests_total{call="queue.reserve",code="200"} 1.0' in metrics
    assert 'querator_requests_total{call="queue.complete",code="200"} 1.0' in metrics


# Opening and ending.


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"queueName": "nowhere"}, "queue does not exist; "),
        ({"queueName": "no where"}, "queue_name is invalid; "),
        ({"clientId": ""}, "client_id is invalid; "),
        ({"batchSize": 1001}, "batch_size is invalid; "),
        ({"batchSize": -1}, "batch_size is invalid; "),
        ({"maxInFlight": None}, "max_in_flight is invalid; it must be given"),
        ({"maxInFlight": -1}, "max_in_flight is invalid; "),
        ({"maxInFlight": 10_001}, "max_in_flight is invalid; "),
        ({"leaseTimeout": "1ms"}, "lease_timeout is invalid; "),
    ],
)
async def test_wrong_openings(stream: Stream, fields: dict[str, Any], message: str) -> None:
    """What cannot be is refused at once, by the status of gRPC and by the envelope."""
    await stream.open(**fields)
    code, envelope = await stream.error()
    assert (code, envelope.code) == (grpc.StatusCode.INVALID_ARGUMENT, 400)
    assert envelope.message.startswith(message)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([consume_pb2.ConsumeRequest()], "open is invalid; the first message"),
        (
            [consume_pb2.ConsumeRequest(open={"queueName": "mail", "clientId": "c", "maxInFlight": 1})] * 2,
            "open is invalid; only",
        ),
        ([b"\xff\xff\xff"], "body is invalid; "),
        ([b"\0" * 5_000_001], "body is too large; "),
    ],
)
async def test_messages_out_of_place(stream: Stream, messages: list[Any], message: str) -> None:
    """A client that does not keep to the protocol is told so, and the stream ends."""
    for each in messages:
        await stream.call.write(each)
    assert (await stream.error())[1].message.startswith(message)


async def test_a_half_closed_stream_ends_in_order(api: Api, stream: Stream) -> None:
    """What was sent is acknowledged, then the stream ends well; what is unanswered stays leased."""
    await produce(api, 3)
    await stream.open(maxInFlight=3)
    items = await stream.items_come(3)
    sequences = [await stream.ask(complete={"ids": [item.id]}) for item in items[:2]]
    await stream.call.done_writing()
    while await stream.read():
        pass
    assert [stream.acks[sequence].outcome.code for sequence in sequences] == [200, 200]
    assert await stream.call.code() is grpc.StatusCode.OK
    await becomes(api, 1, 1, 0)


async def test_a_broken_stream_frees_its_reserve_and_keeps_the_leases(api: Api, stream: Stream) -> None:
    """No item goes to a client that has gone; those that it has are its own until their leases end."""
    await produce(api, 2)
    await stream.open(maxInFlight=3)
    items = await stream.items_come(2)
    await becomes(api, 2, 2, 1)
    stream.call.cancel()
    await becomes(api, 2, 2, 0)
    await produce(api, 1)
    await becomes(api, 3, 2, 0)
    await api.ok("queue.complete", queue_name="mail", partition=0, ids=[item.id for item in items])


async def test_items_are_released_on_request(api: Api, stream: Stream) -> None:
    """With `release_on_close`, what a stream leaves unanswered is ready at once, and nothing else changes."""
    await produce(api, 5)
    await stream.open(maxInFlight=5, releaseOnClose=True)
    items = await stream.items_come(5)
    await stream.complete(items[:2])
    await api.ok("queue.complete", queue_name="mail", partition=0, ids=[items[2].id])  # not on the stream
    stream.call.cancel()
    await becomes(api, 2, 0, 0)
    again = await api.ok("queue.reserve", queue_name="mail", batch_size=5, client_id="d")
    assert [(item["bytes"], item["attempts"]) for item in again["items"]] == [("Mw==", 2), ("NA==", 2)]


async def test_a_queue_that_is_deleted_ends_its_streams(api: Api, stream: Stream) -> None:
    """The client hears that there is nothing to consume any more."""
    await stream.open()
    await becomes(api, 0, 0, 1)
    await api.ok("queues.delete", queue_name="mail", force=True)
    code, envelope = await stream.error()
    assert (code, envelope.code) in {(grpc.StatusCode.UNAVAILABLE, 454), (grpc.StatusCode.INVALID_ARGUMENT, 400)}


@pytest.mark.parametrize("max_in_flight", [1, 5], ids=["full", "waiting"])
async def test_a_stop_ends_streams(api: Api, stream: Stream, max_in_flight: int) -> None:
    """Whether it waits for items or for answers, a stream ends with the stop, and says that it can be opened elsewhere."""
    await produce(api, 1)
    await stream.open(maxInFlight=max_in_flight)
    await stream.items_come(1)
    stopped = asyncio.ensure_future(api.server.stop())
    code, envelope = await stream.error()
    assert (code, envelope.code) == (grpc.StatusCode.UNAVAILABLE, 454)
    assert envelope.message.startswith("instance is stopping; ")
    await stopped
