"""What the client makes of arguments and answers, and when it sends a call again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any

import pytest

from querator import errors, wire
from querator.client import Client
from querator.client_items import ProduceItem, ReservedItem, RetryItem, RetryPolicy
from querator.clock import SystemClock
from querator.durations import to_instant
from querator.transport import Backoff, error_of, parse_address
from tests.unit.client_double import OK, QUICK, Break, Hang, ServerDouble, produced, serve_double


@pytest.fixture
async def double() -> AsyncIterator[ServerDouble]:
    async with serve_double() as double:
        yield double


@pytest.fixture
async def client(double: ServerDouble) -> AsyncIterator[Client]:
    async with Client(double.url, timeout=20, backoff=QUICK, random=Random(1)) as client:
        yield client


def free_address() -> str:
    """An address at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def reserved(*ids: str, partition: int = 0) -> dict[str, Any]:
    deadline = "2030-01-01T00:00:00Z"
    items = [{"id": id_, "attempts": 1, "lease_deadline": deadline, "bytes": "eyJhIjogMX0="} for id_ in ids]
    return {"queue_name": "mail", "partition": partition, "items": items}


async def test_produce_takes_what_people_have(double: ServerDouble, client: Client) -> None:
    """Bytes, texts, mappings and items all arrive as what they mean, and the answer says where they are."""
    double.on("queue.produce", produced)
    at = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    answer = await client.produce(
        "mail",
        [b"\x00", "grüße", {"a": 1}, ProduceItem([1], kind="k", enqueue_at=at, expire_timeout=timedelta(minutes=2))],
    )
    (asked,) = double.asked["queue.produce"]
    assert asked["items"] == [
        {"bytes": "AA=="},
        {"utf8": "grüße"},
        {"bytes": "eyJhIjoxfQ==", "encoding": "application/json"},
        {
            "bytes": "WzFd",
            "encoding": "application/json",
            "kind": "k",
            "enqueue_at": "2030-01-01T10:00:00Z",
            "expire_timeout": "2m",
        },
    ]
    assert answer.partition == 0
    assert len(answer.ids) == 4


@pytest.mark.parametrize("one", [b"x", "x", {"a": 1}, ProduceItem("x")])
async def test_one_payload_is_one_item(double: ServerDouble, client: Client, one: Any) -> None:
    """A single payload is never taken apart as if it were a list."""
    double.on("queue.produce", produced)
    await client.produce("mail", one)
    assert len(double.asked["queue.produce"][0]["items"]) == 1


async def test_calls_tell_who_and_how(double: ServerDouble, client: Client) -> None:
    """Every call asks for extended answers, names the program, and tells the server how long it may take."""
    double.on("queue.produce", produced)
    await client.produce("mail", "x", timeout="1m30s")
    assert double.headers[0]["Querator-Extended"] == "1"
    assert double.headers[0]["User-Agent"].startswith("querator-python/")
    assert double.asked["queue.produce"][0]["request_timeout"].startswith("1m2")


@pytest.mark.parametrize(
    "bad",
    [
        ProduceItem("x", enqueue_at=datetime(2030, 1, 1)),  # noqa: DTZ001  the point of this test
        ProduceItem("x", expire_timeout="soon"),
        ProduceItem("x", expire_timeout=-1),
        ProduceItem("\ud800"),
    ],
)
async def test_what_means_nothing_is_refused_here(double: ServerDouble, client: Client, bad: ProduceItem) -> None:
    """An instant without zone, a wrong duration or a text that is none is an error before anything is sent."""
    with pytest.raises(ValueError):
        await client.produce("mail", bad)
    assert not double.asked


async def test_reserved_items_know_themselves(double: ServerDouble, client: Client) -> None:
    """A reserved item reads its payload, and a batch or its items can be completed without naming anything."""
    double.on("queue.reserve", lambda _: reserved("a", "b", partition=3))
    double.on("queue.complete", lambda _: OK)
    batch = await client.reserve("mail", 2, lease_timeout=timedelta(seconds=90))
    assert double.asked["queue.reserve"][0]["lease_timeout"] == "1m30s"
    assert [item.text for item in batch] == ['{"a": 1}'] * 2
    assert batch[0].json() == {"a": 1}
    assert batch[0].json(dict[str, float]) == {"a": 1.0}
    await client.complete(batch)
    await client.complete(batch[1])
    await client.complete([batch[0]])
    await client.complete("mail", 3, ["c"])
    named = [(asked["queue_name"], asked["partition"], asked["ids"]) for asked in double.asked["queue.complete"]]
    assert named == [("mail", 3, ["a", "b"]), ("mail", 3, ["b"]), ("mail", 3, ["a"]), ("mail", 3, ["c"])]


async def test_nothing_to_reserve_is_an_empty_batch(double: ServerDouble, client: Client) -> None:
    """A reserve that ends without items returns an empty batch, which may be completed like any other."""
    double.script("queue.reserve", [errors.TimedOut("no item became ready")])
    batch = await client.reserve("mail", timeout=0.05)
    assert not batch
    await client.complete(batch)
    await client.retry(batch)
    assert not double.asked["queue.complete"]


async def test_items_of_two_partitions_are_no_call(client: Client) -> None:
    """Items of several partitions cannot be completed all or nothing, and are refused."""
    deadline = datetime(2030, 1, 1, tzinfo=UTC)
    items = [
        ReservedItem(id=str(place), lease_deadline=deadline, queue_name="mail", partition=place) for place in (0, 1)
    ]
    with pytest.raises(ValueError, match="one partition"):
        await client.complete(items)
    with pytest.raises(TypeError):
        await client.complete("mail")


async def test_retry_says_when(double: ServerDouble, client: Client) -> None:
    """A retry without time leaves it to the queue; an instant, a delay and `dead` are sent as such."""
    double.on("queue.retry", lambda _: OK)
    double.on("queue.reserve", lambda _: reserved("a"))
    batch = await client.reserve("mail")
    at = datetime(2031, 1, 1, tzinfo=UTC)
    await client.retry(batch)
    await client.retry(batch, at=at)
    await client.retry(batch, dead=True)
    before = to_instant(SystemClock().now_ms())
    await client.retry("mail", 1, [RetryItem("x", delay="10m"), RetryItem("y")])
    plain, later, dead, listed = (asked["items"] for asked in double.asked["queue.retry"])
    assert (plain, later, dead) == (
        [{"id": "a"}],
        [{"id": "a", "retry_at": "2031-01-01T00:00:00Z"}],
        [{"id": "a", "dead": True}],
    )
    delay = datetime.fromisoformat(listed[0]["retry_at"]) - before
    assert timedelta(minutes=9) < delay < timedelta(minutes=11)
    assert listed[1] == {"id": "y"}


async def test_an_update_names_only_what_changes(double: ServerDouble, client: Client) -> None:
    """What is not given stays out of the request, and a zero that is given stays in it."""
    double.on("queues.update", lambda _: OK)
    await client.update_queue("mail", expire_timeout=0, dead_queue="", retry_policy=RetryPolicy(base="1s"))
    await client.update_queue("mail", logical_queues=4, reference=None)
    with pytest.raises(TypeError, match="lease_timout"):
        await client.update_queue("mail", lease_timout=1)  # type: ignore[call-arg]
    assert double.asked["queues.update"] == [
        {"queue_name": "mail", "expire_timeout": "0s", "dead_queue": "", "retry_policy": {"base": "1s"}},
        {"queue_name": "mail", "logical_queues": "4"},
    ]


@pytest.mark.parametrize("refusal", [errors.Overloaded("busy"), errors.TooManyRequests("slow down"), errors.Stopping()])
async def test_a_refused_call_is_sent_again(
    double: ServerDouble, client: Client, refusal: errors.QueratorError
) -> None:
    """454 and 429 changed nothing: even a produce is repeated until it is taken."""
    double.script("queue.produce", [refusal, refusal, OK])
    await client.produce("mail", "x")
    assert len(double.asked["queue.produce"]) == 3


async def test_retries_end_with_the_time(double: ServerDouble) -> None:
    """A call that is refused for ever raises the last refusal once its total time is over."""
    double.script("queue.produce", [errors.Overloaded("busy")])
    async with Client(double.url, backoff=QUICK) as client:
        with pytest.raises(errors.Overloaded, match="busy"):
            await client.produce("mail", "x", timeout=0.1)
    assert len(double.asked["queue.produce"]) > 1


@pytest.mark.parametrize("end", [Break(), errors.InternalError()])
async def test_an_unknown_produce_is_not_repeated(double: ServerDouble, client: Client, end: Exception) -> None:
    """A produce whose outcome is unknown is raised, not repeated: repeating could store the items twice."""
    double.script("queue.produce", [end])
    with pytest.raises((errors.TransportError, errors.InternalError)):
        await client.produce("mail", "x")
    assert len(double.asked["queue.produce"]) == 1


@pytest.mark.parametrize("end", [Break(), errors.InternalError()])
async def test_an_unknown_produce_is_repeated_on_demand(double: ServerDouble, client: Client, end: Exception) -> None:
    """With `retry_unknown` the caller accepts duplicates, and the produce is repeated."""
    double.script("queue.produce", [end, OK])
    await client.produce("mail", "x", retry_unknown=True)
    assert len(double.asked["queue.produce"]) == 2


async def test_a_repeated_complete_tells_of_its_lost_answer(double: ServerDouble, client: Client) -> None:
    """A complete is repeated after a lost answer; if it then finds no lease, the error says what may have happened."""
    double.script("queue.complete", [Break(), errors.NotLeased("a")])
    with pytest.raises(errors.NotLeased) as caught:
        await client.complete("mail", 0, "a")
    assert "lost its answer" in caught.value.__notes__[0]


async def test_a_server_that_hangs_is_given_up(double: ServerDouble) -> None:
    """A server that takes the call and never answers costs the call's time and the slack, not more."""
    double.script("queue.produce", [Hang()])
    async with Client(double.url, slack=0.05) as client:
        with pytest.raises(errors.TransportError, match=r"answer was lost; .* did not answer within"):
            await client.produce("mail", "x", timeout=0.05)


async def test_a_connection_in_vain_is_tried_again() -> None:
    """Where nobody listens the call raises 512 when its time is over, and says why."""
    address = free_address()
    async with Client(address, backoff=QUICK) as client:
        with pytest.raises(errors.TransportError, match=r"server is unreachable; .*Connection refused") as caught:
            await client.produce("mail", "x", timeout=0.1)
    assert caught.value.code == 512


async def test_the_next_address_takes_over(double: ServerDouble) -> None:
    """With several addresses a dead one costs nothing but the attempt, and is left alone afterwards."""
    double.on("queue.produce", produced)
    slow = Backoff(base_s=3600, max_s=3600)
    async with Client(free_address(), double.url, backoff=slow) as client:
        await client.produce("mail", "x")
        await client.produce("mail", "y")
    assert len(double.asked["queue.produce"]) == 2


async def test_a_stopping_instance_is_left(double: ServerDouble) -> None:
    """An instance that says it stops sends its callers to the next."""
    double.script("queue.produce", [errors.Stopping()])
    async with serve_double() as other:
        other.on("queue.produce", produced)
        async with Client(double.url, other.url, backoff=QUICK) as client:
            await client.produce("mail", "x")
    assert len(double.asked["queue.produce"]) == 1
    assert len(other.asked["queue.produce"]) == 1


async def test_a_cancelled_call_is_over(double: ServerDouble, client: Client) -> None:
    """Cancelling a long poll ends it at once, and the client goes on."""
    double.script("queue.reserve", [Hang()])
    waiting = asyncio.create_task(client.reserve("mail"))
    await double.until(lambda: bool(double.asked["queue.reserve"]))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    double.on("queue.produce", produced)
    await client.produce("mail", "x")


async def test_errors_of_the_tree_arrive_as_themselves(double: ServerDouble, client: Client) -> None:
    """An error is raised as the class that the server meant, with its message unchanged."""
    for error in (
        errors.NoSuchQueue("x"),
        errors.NotLeased("1"),
        errors.InvalidRequest("queue_name is invalid", "it must not be empty"),
        errors.Unauthorized("no"),
        errors.Forbidden("no"),
        errors.NotFound("no"),
        errors.Conflict("queue exists", "a; b"),
        errors.RequestFailed("cannot"),
        errors.ContentError("not JSON"),
        errors.NoSuchMethod("/v1/x"),
    ):
        double.script("queues.info", [error])
        with pytest.raises(errors.QueratorError) as caught:
            await client.queue_info("x")
        assert type(caught.value) is type(error)
        assert (caught.value.message, caught.value.details) == (error.message, error.details)


def test_codes_that_nobody_defined_are_still_errors() -> None:
    """An answer of something between us and the server is an error that names its status."""
    assert isinstance(error_of(502, "unexpected answer; bad gateway"), errors.InternalError)
    assert isinstance(error_of(418, ""), errors.RequestFailed)
    assert "418" in error_of(418, "").message


@pytest.mark.parametrize("address", ["", "http://", "ftp://x:1", "http://x:port"])
def test_wrong_addresses_are_refused(address: str) -> None:
    """An address that cannot be one fails when the client is made, not at the first call."""
    with pytest.raises(ValueError):
        parse_address(address)


async def test_pages_are_followed(double: ServerDouble, client: Client) -> None:
    """The iterators give every queue and item once, though a pivot is inclusive."""
    names = [f"q{number}" for number in range(7)]

    def listed(body: dict[str, Any]) -> dict[str, Any]:
        start = names.index(body["pivot"]) if body.get("pivot") else 0
        return {"items": [{"queue_name": name} for name in names[start : start + body["limit"]]]}

    def items(body: dict[str, Any]) -> dict[str, Any]:
        return {"items": [{"id": queue["queue_name"]} for queue in listed(body)["items"]]}

    double.on("queues.list", listed)
    double.on("storage/items.list", items)
    double.on("storage/scheduled.list", items)
    for page in (1, 2, 3, 6, 7, 8):
        assert [queue.queue_name async for queue in client.iter_queues(page=page)] == names
        assert [item.id async for item in client.iter_items("mail", page=page)] == names
        assert [item.id async for item in client.iter_scheduled("mail", page=page)] == names


async def test_every_call_of_the_wire_has_a_method(double: ServerDouble, client: Client) -> None:
    """Each method sends exactly the fields that the wire knows for its call."""
    deadline = "2030-01-01T00:00:00Z"
    double.on("queue.renew", lambda _: {"items": [{"id": "a", "lease_deadline": deadline}]})
    double.on("queue.stats", lambda _: {"queue_name": "mail", "logicalQueues": [{"in_flight": 2}]})
    double.on("storage/items.import", lambda body: {"items": body["items"]})
    double.on("health", lambda _: {"status": "pass"})
    for call in ("clear", "reload", "pause", "resume"):
        double.on(f"queue.{call}", lambda _: OK)
    for call in ("queues.create", "queues.delete", "storage/items.delete"):
        double.on(call, lambda _: OK)
    assert (await client.renew("mail", 0, "a")).isoformat() == "2030-01-01T00:00:00+00:00"
    assert (await client.stats("mail")).logical_queues[0].in_flight == 2
    await client.clear("mail", scheduled=True)
    await client.reload("mail")
    await client.pause("mail", reserve=True)
    await client.resume("mail")
    await client.create_queue("mail", lease_timeout="1m", requested_partitions=4)
    await client.delete_queue("mail", force=True)
    assert (await client.import_items("mail", 1, [wire.StorageItem(payload=b"x")]))[0].payload == b"x"
    await client.delete_items("mail", 1, "a")
    assert (await client.health()).status == "pass"
    assert double.asked["queue.clear"] == [{"queue_name": "mail", "queue": True, "scheduled": True}]
    assert double.asked["queue.pause"] == [{"queue_name": "mail", "reserve": True}]
    assert double.asked["queues.create"] == [{"queue_name": "mail", "lease_timeout": "1m", "requested_partitions": 4}]


def test_backoff_grows_and_is_bounded() -> None:
    """Delays double from the base to the maximum, and are spread over their upper half."""
    backoff = Backoff(base_s=1, factor=2, max_s=8)
    random = Random(7)
    for attempt, full in enumerate([1, 2, 4, 8, 8, 8]):
        delays = [backoff.delay_s(attempt, random) for _ in range(200)]
        assert full / 2 <= min(delays) < max(delays) <= full
