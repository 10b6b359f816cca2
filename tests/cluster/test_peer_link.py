"""The links between instances over gRPC: frames both ways, and an end that is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from api.peer_link import SERVER_OPTIONS, Caller, peer_handler
from bench.ports import lasting_port
from cluster.channel import LinkLost
from cluster.membership import PREFIX, Member
from cluster.messages import Message
from cluster.mirror import Mirror
from cluster.one_host import OneHostCoordinator
from cluster.peers import Peers
from querator.clock import SystemClock
from querator.errors import RetryRequest
from tests.realcluster.wires import Flow, Wire


class Echo:
    """Answers every complete, and keeps reserves waiting."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[Any]] = []

    def ask(self, instance: str, call: str, arguments: tuple[Any, ...]) -> Awaitable[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if call == "renew":
            future.set_result(len(arguments[2]) + len(instance))
        else:
            self.waiting.append(future)
        return future

    def hear(self, instance: str, message: Message) -> None:
        raise AssertionError(f"{instance} said {message}")


class Site:
    """One instance that answers at a socket, and one that asks it."""

    def __init__(self, address: str, coordinator: OneHostCoordinator) -> None:
        self.address = address
        members: Mirror[Member] = Mirror(coordinator, PREFIX, lambda _: self.member())
        members.put("b", self.member(), 1)
        self.echo = Echo()
        make = partial(Peers, members=members, clock=SystemClock())
        self.asking = make(connect=Caller("asks").connect)
        self.answering = make(connect=Caller("b").connect)
        for peers in (self.asking, self.answering):
            peers.answer_with(self.echo)
        self.server: Any = None

    def member(self) -> Member:
        return Member(
            id="b", host="h", addresses=(), peer_address=self.address, version="1", started_at_ms=1, backends={}
        )

    async def start(self) -> None:
        self.server = grpc.aio.server(options=SERVER_OPTIONS)
        self.server.add_generic_rpc_handlers((peer_handler(self.answering),))
        self.server.add_insecure_port(self.address)
        await self.server.start()

    async def stop(self) -> None:
        await self.answering.close()
        await self.server.stop(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    coordinator = await OneHostCoordinator.open(tmp_path / "cluster.db")
    site = Site(f"unix:{tmp_path}/b.sock", coordinator)
    await site.start()
    yield site
    await site.asking.close()
    await site.stop()
    await coordinator.close()


async def test_many_calls_go_over_one_link(site: Site) -> None:
    """Thousands of calls at once, large and small, are each answered with their own result."""
    calls = [site.asking.ask("b", "renew", ("mail", 0, ["x" * 100] * n, 1000, 0), 10_000) for n in range(1500)]
    assert await asyncio.gather(*calls) == [n + len("asks") for n in range(1500)]


async def test_an_instance_that_stops_ends_the_link(site: Site) -> None:
    """What it was asked is answered with a refusal, and after it has started again it is found again."""
    waiting = site.asking.ask("b", "complete", ("mail", 0, ["id"], 60_000), 60_000)
    await site.until(lambda: bool(site.echo.waiting))
    await site.stop()
    with pytest.raises(RetryRequest):
        await waiting
    await site.start()
    async with asyncio.timeout(20):
        while True:
            try:
                assert await site.asking.ask("b", "renew", ("mail", 0, [], 1000, 0), 1000) == len("asks")
            except RetryRequest:
                continue
            break


async def test_whoever_hangs_up_is_noticed(site: Site) -> None:
    """When the asking instance goes, what it asked is cancelled where it waits."""
    waiting = site.asking.ask("b", "reserve", ("mail", 1, "me", 60_000, 0), 60_000)
    await site.until(lambda: bool(site.echo.waiting))
    await site.asking.close()
    await site.until(site.echo.waiting[0].cancelled)
    assert waiting.done()
    waiting.exception()


async def test_an_instance_that_falls_silent_is_noticed_within_seconds(tmp_path: Path) -> None:
    """A cut network or a paused process ends the link, long before a caller would give up."""
    port = lasting_port()
    coordinator = await OneHostCoordinator.open(tmp_path / "cluster.db")
    site, wire = Site(f"127.0.0.1:{port}", coordinator), Wire(port)
    await site.start()
    await wire.start()
    link = await Caller("a").connect(wire.address)
    try:
        await wire.let(Flow.SILENT)
        with pytest.raises(LinkLost):
            async with asyncio.timeout(40):  # by itself gRPC takes a minute
                await link.read()
    finally:
        await link.close()
        await wire.close()
        await site.stop()
        await coordinator.close()


async def test_an_address_where_nobody_listens_is_no_link(tmp_path: Path) -> None:
    """Connecting fails with what could not be reached."""
    with pytest.raises(LinkLost, match="does not answer"):
        await Caller("a").connect(f"unix:{tmp_path}/nobody.sock")
