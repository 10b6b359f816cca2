"""Nobody waits where nothing comes while there are items elsewhere, and nobody waits for an instance that stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cluster.assignment import Assignment
from cluster.routes import Route
from querator.errors import Stopping
from querator.member import Status
from querator.queues import QueueSettings
from querator.requests import Reservation
from tests.cluster.conftest import Station
from tests.cluster.trio import Trio, payloads, trio_in, until


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    async with trio_in(tmp_path) as trio:
        await trio.sites[0].create("mail", requested_partitions=3, logical_queues=3)
        await trio.until_spread("mail", 3)
        yield trio


async def test_a_reserve_finds_items_elsewhere_while_nothing_works_here(trio: Trio) -> None:
    """The logical queue that it waits with may have lost its backend."""
    a, b, _ = trio.sites
    (logical_queue,) = a.participant.host.logical_queues("mail")
    for member in logical_queue.members.values():
        member.status = Status.FAILING
    waiting = a.reserve("mail")
    await asyncio.sleep(0)
    await b.produce("mail", b"x")
    assert payloads(await waiting) == [b"x"]


async def test_a_reserve_that_comes_back_to_an_instance_that_stops_is_refused(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was elsewhere when all that waited were told, and must not wait until its time is over."""
    a, b, _ = trio.sites
    asked: list[asyncio.Future[Reservation | None]] = []
    ask = a.participant.peers.ask

    def hold_up(instance: str, call: str, arguments: tuple[Any, ...], timeout_ms: int) -> asyncio.Future[Any]:
        if call != "reserve":
            return ask(instance, call, arguments, timeout_ms)
        asked.append(asyncio.get_running_loop().create_future())
        return asked[-1]

    monkeypatch.setattr(a.participant.peers, "ask", hold_up)
    waiting = a.reserve("mail")
    await b.produce("mail", b"x")
    await until(lambda: bool(asked), "it has gone elsewhere")
    a.participant.router.stop_waiting()
    asked[0].set_result(None)
    async with asyncio.timeout(10):
        with pytest.raises(Stopping):
            await waiting


async def test_who_owns_a_part_of_a_queue_is_not_alone(station: Station) -> None:
    """While another logical queue of the same instance is on its way, those that wait must hear of it."""
    settings = QueueSettings(queue_name="mail", requested_partitions=2, logical_queues=2)
    await station.router.management.create_queue(settings)
    first, second = station.router.route("mail").here
    assert Route("mail", [0, 1], [first], []).alone is None
    assert Route("mail", [*second.members], [second], []).alone is second


async def test_what_is_let_go_of_while_the_host_closes_is_closed_in_order(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A logical queue that moves away in that moment is not left half closed, with tasks that nobody ends."""
    await station.router.management.create_queue(QueueSettings(queue_name="mail"))
    (logical_queue,) = station.host.logical_queues("mail")
    close = logical_queue.close
    begun, may_go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_close(*arguments: Any) -> None:
        begun.set()
        await may_go_on.wait()
        await close(*arguments)
        done.set()

    monkeypatch.setattr(logical_queue, "close", slow_close)
    station.catalog._assignments.put("mail", Assignment(epoch=1 << 40), 1 << 40)
    await begun.wait()
    closing = asyncio.create_task(station.host.close())
    await asyncio.sleep(0)
    may_go_on.set()
    await closing
    assert done.is_set()
