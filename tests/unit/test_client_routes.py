"""How a client finds the owner of what its calls are about, and what it does when that goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from querator import client_routes, errors
from querator.client import Client
from querator.client_routes import can_go_direct
from tests.unit.client_double import OK, QUICK, Break, ServerDouble, produced, serve_double


class Trio:
    """A door that owns nothing, and two owners: of partition 0 and of partition 1."""

    def __init__(self, door: ServerDouble, *owners: ServerDouble) -> None:
        self.door = door
        self.owners = owners
        self.all = (door, *owners)
        for server in self.all:
            server.on("queue.produce", produced)
            server.on("queue.complete", lambda _: OK)
            server.on("cluster.route", lambda _: self.route())

    def route(self) -> dict[str, Any]:
        return {
            "queue_name": "mail",
            "partitions": [
                {"partition": place, "instance": f"i{place}", "address": address(owner), "epoch": 1}
                for place, owner in enumerate(self.owners)
            ],
            "addresses": [address(server) for server in self.all],
        }

    def counts(self, call: str = "queue.produce") -> list[int]:
        return [len(server.asked[call]) for server in self.all]

    async def until_known(self, client: Client) -> None:
        """Call until the client goes to the owners; then forget what was asked."""
        async with asyncio.timeout(30):
            while not any(self.counts("queue.complete")[1:]):
                await client.complete("mail", 0, "x")
                await client.complete("mail", 1, "x")
        for server in self.all:
            server.asked.clear()


def address(server: ServerDouble) -> str:
    return server.url.removeprefix("http://")


@pytest.fixture
async def trio() -> AsyncIterator[Trio]:
    async with AsyncExitStack() as stack:
        yield Trio(*[await stack.enter_async_context(serve_double()) for _ in range(3)])


def make_client(trio: Trio, **options: Any) -> Client:
    return Client(trio.door.url, timeout=20, backoff=QUICK, random=Random(1), **options)


async def test_a_server_that_hints_at_nobody_is_asked_nothing_more(trio: Trio) -> None:
    """With one instance there are no hints, and so not a single call beside those of the caller."""
    async with make_client(trio) as client:
        for _ in range(5):
            await client.produce("mail", "x")
    assert trio.counts() == [5, 0, 0]
    assert trio.counts("cluster.route") == [0, 0, 0]


async def test_a_hint_shows_the_way(trio: Trio) -> None:
    """After a hint the route is asked for once; produces then go to the owners in turn, completes to their own."""
    trio.door.answer_headers["Querator-Owner"] = address(trio.owners[0])
    async with make_client(trio) as client:
        await trio.until_known(client)
        for _ in range(4):
            await client.produce("mail", "x")
        for partition in (0, 1, 1):
            await client.complete("mail", partition, "x")
        assert trio.counts() == [0, 2, 2]
        assert trio.counts("queue.complete") == [0, 1, 2]
        assert trio.counts("cluster.route") == [0, 0, 0]


async def test_who_wants_no_hints_gets_none(trio: Trio) -> None:
    """With `direct=False`, and behind a path or TLS, the client stays with the addresses that it was given."""
    trio.door.answer_headers["Querator-Owner"] = address(trio.owners[0])
    async with make_client(trio, direct=False) as client:
        for _ in range(3):
            await client.complete("mail", 0, "x")
    assert trio.counts("queue.complete") == [3, 0, 0]
    assert can_go_direct(["http://a:1", "b:2"])
    for behind in ("https://a:1", "http://a:1/queues", "http://user:word@a:1"):
        assert not can_go_direct(["http://a:1", behind])


async def test_who_wants_it_goes_direct_without_a_hint(trio: Trio) -> None:
    """With `direct=True` the route is asked for at the first call of a queue, once."""
    async with make_client(trio, direct=True) as client:
        await client.produce("mail", "x")
        await trio.door.until(lambda: bool(trio.door.asked["cluster.route"]))
        await trio.until_known(client)
        await client.produce("mail", "x")
        assert sum(trio.counts("cluster.route")) == 0


async def test_one_instance_is_asked_once(trio: Trio) -> None:
    """A route of a single instance changes nothing, and is not asked for again before its time."""
    trio.door.on("cluster.route", lambda _: {"partitions": [{"address": "127.0.0.1:1"}], "addresses": ["127.0.0.1:1"]})
    async with make_client(trio, direct=True) as client:
        await client.produce("mail", "x")
        await trio.door.until(lambda: bool(trio.door.asked["cluster.route"]))
        for _ in range(5):
            await client.produce("mail", "x")
    assert trio.counts("cluster.route") == [1, 0, 0]
    assert trio.counts() == [6, 0, 0]


async def test_a_server_that_knows_no_routes_is_no_harm(trio: Trio) -> None:
    """Where `cluster.route` fails, calls go on as they did."""
    trio.door.script("cluster.route", [errors.NoSuchMethod("/v1/cluster.route")])
    async with make_client(trio, direct=True) as client:
        await client.produce("mail", "x")
        await trio.door.until(lambda: bool(trio.door.asked["cluster.route"]))
        await client.produce("mail", "x")
    assert trio.counts() == [2, 0, 0]


async def test_a_partition_that_moved_is_found_again(trio: Trio) -> None:
    """454 `partition has moved` from an owner is answered by another server at once, and the caller sees nothing."""
    async with make_client(trio, direct=True) as client:
        await trio.until_known(client)
        trio.owners[0].script("queue.complete", [errors.Moved("mail")])
        await client.complete("mail", 0, "x")
        await client.complete("mail", 0, "x")
        assert trio.counts("queue.complete") == [2, 1, 0]


async def test_an_owner_that_is_gone_is_left_alone(trio: Trio) -> None:
    """When nobody listens at an owner's address, every call is taken by another server, and it is not tried each time."""
    gone = "127.0.0.1:1"
    route = trio.route()
    route["partitions"][0]["address"] = gone
    for server in trio.all:
        server.on("cluster.route", lambda _: route)
    async with make_client(trio, direct=True) as client:
        await client.complete("mail", 0, "x")
        await trio.door.until(lambda: bool(trio.door.asked["cluster.route"]))
        for _ in range(4):
            await client.complete("mail", 0, "x")
            await client.produce("mail", "x")
    assert sum(trio.counts("queue.complete")) == 5
    assert sum(trio.counts()) == 4


async def test_a_produce_whose_answer_was_lost_is_not_repeated_elsewhere(trio: Trio) -> None:
    """What was sent straight to an owner and lost its answer may be stored: it is raised, as it is anywhere."""
    async with make_client(trio, direct=True) as client:
        await trio.until_known(client)
        for owner in trio.owners:
            owner.script("queue.produce", [Break()])
        with pytest.raises(errors.TransportError, match="answer was lost"):
            await client.produce("mail", "x")
        assert sum(trio.counts()) == 1
        await client.produce("mail", "x", retry_unknown=True)
        assert sum(trio.counts()[1:]) == 2
        assert trio.counts()[0] == 1


async def test_an_old_route_is_asked_for_again(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    """A route that is used is asked for again after a while, beside the calls."""
    async with make_client(trio, direct=True) as client:
        await trio.until_known(client)
        monkeypatch.setattr(client_routes, "_AGE_S", 0.0)
        await client.complete("mail", 0, "x")
        async with asyncio.timeout(30):
            while not any(trio.counts("cluster.route")):
                await asyncio.sleep(0.001)


async def test_learned_addresses_take_over(trio: Trio) -> None:
    """A client that was given one address goes on with the others that it learned when that one is gone."""
    async with AsyncExitStack() as stack:
        door = await stack.enter_async_context(serve_double())
        door.on("queue.complete", lambda _: OK)
        door.on("cluster.route", lambda _: trio.route())
        async with Client(door.url, timeout=20, backoff=QUICK, direct=True) as client:
            await trio.until_known(client)
            await stack.aclose()
            trio.door.on("queues.list", lambda _: {"items": [{"queue_name": "mail"}]})
            trio.owners[0].on("queues.list", lambda _: {"items": [{"queue_name": "mail"}]})
            assert len(await client.list_queues()) == 1


async def test_a_refused_call_goes_to_another_address(trio: Trio) -> None:
    """454 and 429 of one server are tried at the others too; the next call begins at the first again."""
    trio.door.script("queue.produce", [errors.Overloaded("too many connections")])
    async with Client(*(server.url for server in trio.all), timeout=20, backoff=QUICK) as client:
        await client.produce("mail", "x")
        await client.produce("mail", "x")
    assert trio.counts() == [2, 2, 0]


async def test_the_number_of_routes_is_bounded(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that uses many queues keeps the routes of some of them."""
    monkeypatch.setattr(client_routes, "_MAX_QUEUES", 3)
    async with make_client(trio, direct=True) as client:
        for place in range(10):
            await client.produce(f"mail-{place}", "x")
        await trio.door.until(lambda: len(trio.door.asked["cluster.route"]) == 10)
        routes = client._calls._routes
        assert routes is not None
        await asyncio.gather(*routes._asking.values())
        assert len(routes._routes) == 3
