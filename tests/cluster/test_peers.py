"""Instances that ask each other, over links that carry many messages in a frame and may be cut at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster import messages
from cluster.membership import PREFIX, Member
from cluster.messages import Hungry, Message
from cluster.mirror import Mirror
from cluster.one_host import OneHostCoordinator
from cluster.peers import Peers
from querator.clock import SystemClock
from querator.errors import NoSuchMethod, NoSuchQueue, ProduceInDoubt, RetryRequest
from querator.items import Item
from querator.requests import Produced, Reservation, Run
from tests.cluster.links import MemoryLink, Wires


def member(name: str) -> Member:
    return Member(id=name, host="h", addresses=(), peer_address=f"{name}:1", version="1", started_at_ms=1, backends={})


class Answers:
    """An instance that answers what the test says, or lets everybody wait."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, tuple[Any, ...]]] = []
        self.heard: list[tuple[str, Message]] = []
        self.waiting: list[asyncio.Future[Any]] = []
        self.results: dict[str, Any] = {}

    def ask(self, instance: str, call: str, arguments: tuple[Any, ...]) -> Awaitable[Any]:
        self.asked.append((instance, call, arguments))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if call in self.results:
            result = self.results[call]
            if isinstance(result, Exception):
                raise result
            future.set_result(result)
        else:
            self.waiting.append(future)
        return future

    def hear(self, instance: str, message: Message) -> None:
        self.heard.append((instance, message))


class Pair:
    """Instance "a", which asks, and instance "b", which answers."""

    def __init__(self, coordinator: OneHostCoordinator) -> None:
        self.wires = Wires()
        self.answers = Answers()
        self.members: Mirror[Member] = Mirror(coordinator, PREFIX, lambda _: member("?"))
        for revision, name in enumerate("ab", 1):
            self.members.put(name, member(name), revision)
        clock = SystemClock()
        self.a, self.b = (Peers(self.members, partial(self.wires.connect, name), clock) for name in ("a", "b"))
        for peers in (self.a, self.b):
            peers.answer_with(self.answers)
        self.wires.plugged = {"a:1": self.a, "b:1": self.b}

    async def until_asked(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.answers.asked) < count:
                await asyncio.sleep(0.001)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    coordinator = await OneHostCoordinator.open(tmp_path / "cluster.db")
    pair = Pair(coordinator)
    yield pair
    await pair.a.close()
    await pair.b.close()
    await coordinator.close()


PRODUCE: tuple[Any, ...] = ("mail", [Item(b"x")], [], 1, 1000)


async def test_a_call_is_answered_with_what_the_other_returned(pair: Pair) -> None:
    """Arguments and results arrive as the values that they were."""
    run = Run(5, 0, [Item(b"x", kind="k", attempts=2)], fresh=True)
    pair.answers.results = {"produce": Produced(3, [run], ["s"]), "reserve": Reservation(1, 9, [run]), "complete": None}
    assert await pair.a.ask("b", "produce", PRODUCE, 1000) == Produced(3, [run], ["s"])
    assert await pair.a.ask("b", "reserve", ("mail", 1, "me", 1000, 0), 1000) == Reservation(1, 9, [run])
    assert await pair.a.ask("b", "complete", ("mail", 1, ["id"], 1000), 1000) is None
    assert pair.answers.asked[0] == ("a", "produce", PRODUCE)


async def test_an_error_arrives_as_it_was_raised(pair: Pair) -> None:
    """The class, the code and the text are those of the instance that refused."""
    pair.answers.results = {"stats": NoSuchQueue("mail")}
    with pytest.raises(NoSuchQueue, match="no queue is named 'mail'"):
        await pair.a.ask("b", "stats", ("mail",), 1000)


async def test_calls_that_wait_together_travel_together(pair: Pair) -> None:
    """Of a hundred calls at once, the first goes alone and the others share frames."""
    pair.answers.results = {"complete": None}
    calls = [pair.a.ask("b", "complete", ("mail", 0, [str(n)], 1000), 1000) for n in range(100)]
    await asyncio.gather(*calls)
    (link,) = pair.wires.links
    assert sum(len(messages.decode_frame(frame)) for frame in link.frames) == 100
    assert len(link.frames) < 10


async def test_what_was_sent_over_a_link_that_is_cut_is_in_doubt(pair: Pair) -> None:
    """A produce must not be sent again by itself; everything else may be."""
    produce = pair.a.ask("b", "produce", PRODUCE, 60_000)
    complete = pair.a.ask("b", "complete", ("mail", 0, ["id"], 60_000), 60_000)
    await pair.until_asked(2)
    pair.wires.cut_all()
    with pytest.raises(ProduceInDoubt):
        await produce
    with pytest.raises(RetryRequest):
        await complete


async def test_whoever_was_asked_over_a_link_that_is_cut_stops_waiting(pair: Pair) -> None:
    """So that what it would have leased is given back."""
    reserve = pair.a.ask("b", "reserve", ("mail", 1, "me", 60_000, 0), 60_000)
    await pair.until_asked(1)
    pair.wires.cut_all()
    async with asyncio.timeout(10):
        await asyncio.wait(pair.answers.waiting)
    assert pair.answers.waiting[0].cancelled()
    with pytest.raises(RetryRequest):
        await reserve


async def test_a_call_that_nobody_waits_for_is_cancelled_at_the_other_end(pair: Pair) -> None:
    """A caller that goes away frees what waits for it on the other instance."""
    reserve = pair.a.ask("b", "reserve", ("mail", 1, "me", 60_000, 0), 60_000)
    await pair.until_asked(1)
    reserve.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait(pair.answers.waiting)
    assert pair.answers.waiting[0].cancelled()


async def test_a_lost_link_is_made_again(pair: Pair) -> None:
    """The next call after a cut goes over a new link."""
    pair.answers.results = {"complete": None}
    complete = ("mail", 0, ["id"], 1000)
    await pair.a.ask("b", "complete", complete, 1000)
    pair.wires.cut_all()
    async with asyncio.timeout(10):
        while True:
            try:
                await pair.a.ask("b", "complete", complete, 1000)
            except RetryRequest:
                continue
            break


async def test_an_instance_that_cannot_be_reached_is_not_waited_for(pair: Pair) -> None:
    """Calls to it are answered with a refusal that says that they may be tried again, also a produce."""
    del pair.wires.plugged["b:1"]
    with pytest.raises(RetryRequest, match="'b' cannot be reached"):
        await pair.a.ask("b", "produce", PRODUCE, 60_000)


async def test_an_instance_that_left_is_not_waited_for(pair: Pair) -> None:
    """What it was asked fails as soon as it is known to be gone."""
    complete = pair.a.ask("b", "complete", ("mail", 0, ["id"], 60_000), 60_000)
    await pair.until_asked(1)
    pair.members.remove("b", 99)
    pair.a.members_changed("b")
    with pytest.raises(RetryRequest):
        await complete
    with pytest.raises(RetryRequest, match="'b' is not in the cluster"):
        pair.a.ask("b", "stats", ("mail",), 1000)


async def test_what_is_told_is_heard(pair: Pair) -> None:
    """A message that needs no answer arrives with the name of who said it."""
    pair.a.tell("b", Hungry("mail", 3))
    async with asyncio.timeout(10):
        while not pair.answers.heard:
            await asyncio.sleep(0.001)
    assert pair.answers.heard == [("a", Hungry("mail", 3))]


class Gate:
    """Holds up what is written at one end of a link, as an instance does that reads nothing."""

    def __init__(self, link: MemoryLink) -> None:
        self._write = link.write
        self._open = asyncio.Event()
        self.is_reached = asyncio.Event()
        link.write = self.write  # type: ignore[method-assign]

    async def write(self, frame: bytes) -> None:
        self.is_reached.set()
        await self._open.wait()
        await self._write(frame)

    def open(self) -> None:
        self._open.set()


async def gate_of(pair: Pair) -> Gate:
    """The link from "a" to "b", with one frame held up."""
    pair.answers.results = {"stats": [], "complete": None}
    await pair.a.ask("b", "stats", ("mail",), 1000)
    gate = Gate(pair.wires.links[0])
    pair.a.tell("b", Hungry("mail", 1))
    await gate.is_reached.wait()
    return gate


async def test_a_produce_that_was_refused_before_it_was_sent_is_never_sent(pair: Pair) -> None:
    """Its caller was told that nothing is stored, and may have sent it again."""
    gate = await gate_of(pair)
    with pytest.raises(RetryRequest):
        await pair.a.ask("b", "produce", PRODUCE, -2_000)
    gone = pair.a.ask("b", "reserve", ("mail", 1, "me", 1000, 0), 1000)
    gone.cancel()
    gate.open()
    await pair.a.ask("b", "complete", ("mail", 0, ["id"], 1000), 1000)
    assert [call for _, call, _ in pair.answers.asked] == ["stats", "complete"]


async def test_a_call_whose_answer_is_late_is_cancelled_at_the_other_end(pair: Pair) -> None:
    """What it would lease then would be leased for nobody."""
    reserve = pair.a.ask("b", "reserve", ("mail", 1, "me", 60_000, 0), -1_000)
    await pair.until_asked(1)
    with pytest.raises(RetryRequest):
        await reserve
    async with asyncio.timeout(10):
        await asyncio.wait(pair.answers.waiting)
    assert pair.answers.waiting[0].cancelled()


async def test_large_calls_share_no_frame(pair: Pair) -> None:
    """However many wait, a frame stays far below what a link takes."""
    gate = await gate_of(pair)
    pair.answers.results["produce"] = Produced(0, [], [])
    large: tuple[Any, ...] = ("mail", [Item(bytes(3 << 20))], [], 3 << 20, 10_000)
    calls = [pair.a.ask("b", "produce", large, 10_000) for _ in range(8)]
    gate.open()
    await asyncio.gather(*calls)
    assert max(map(len, pair.wires.links[0].frames)) < 8 << 20


async def test_a_call_that_the_other_does_not_know_is_refused_alone(pair: Pair) -> None:
    """An instance of a newer version may ask for more; what else is under way goes on."""
    waiting = pair.a.ask("b", "reserve", ("mail", 1, "me", 60_000, 0), 60_000)
    with pytest.raises(NoSuchMethod):
        await pair.a.ask("b", "of tomorrow", (), 1000)
    assert not waiting.done()


async def test_an_import_over_a_link_that_is_cut_is_in_doubt(pair: Pair) -> None:
    """Sent again, its items could be there twice."""
    imported = pair.a.ask("b", "import_items", ("mail", 0, [Item(b"x")]), 60_000)
    await pair.until_asked(1)
    pair.wires.cut_all()
    with pytest.raises(ProduceInDoubt):
        await imported


async def test_a_call_ends_in_time_also_if_no_link_comes_to_be(pair: Pair) -> None:
    """An attempt to connect that hangs holds up nobody for longer than the call was given."""

    async def hang(_address: str) -> MemoryLink:
        await asyncio.Event().wait()
        raise AssertionError

    peers = Peers(pair.members, hang, SystemClock())
    peers.answer_with(pair.answers)
    async with asyncio.timeout(30):
        with pytest.raises(RetryRequest, match="'b' cannot be reached"):
            await peers.ask("b", "complete", ("mail", 0, ["id"], 10), 10)
    await peers.close()


async def test_an_instance_that_left_before_it_was_reached_is_not_waited_for(pair: Pair) -> None:
    """Also if nothing had begun yet."""
    asked = pair.a.ask("b", "complete", ("mail", 0, ["id"], 60_000), 60_000)
    pair.members.remove("b", 99)
    pair.a.members_changed("b")
    async with asyncio.timeout(30):
        with pytest.raises(RetryRequest):
            await asked
    with pytest.raises(RetryRequest, match="'b' is not in the cluster"):
        pair.a.ask("b", "stats", ("mail",), 1000)
