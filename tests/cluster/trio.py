"""Three instances in one process, on one coordination file and the same backends, with links that can be cut."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from cluster.one_host import OneHostCoordinator
from cluster.participant import Participant
from querator.clock import SystemClock
from querator.items import Item
from querator.limits import Limits
from querator.queues import QueueSettings
from querator.requests import Produced, Reservation
from querator.waist import Backend
from storage import SqliteBackend
from tests.cluster.links import Wires
from tests.cluster.members import member_with

TIMEOUT_MS = 20_000
_LEASE_MS = 1_500
_BACKENDS = ("one", "two")


class Site:
    """One instance."""

    def __init__(self, name: str, folder: Path, wires: Wires) -> None:
        self.name = name
        self._folder = folder
        self._wires = wires
        self.coordinator: OneHostCoordinator
        self.backends: dict[str, Backend] = {}
        self.participant: Participant

    async def start(self) -> None:
        self.coordinator = await OneHostCoordinator.open(self._folder / "cluster.db")
        for name in _BACKENDS:
            path = self._folder / f"{name}.db"
            self.backends[name] = await SqliteBackend.open(name=name, path=path, synchronous="off")
        address = f"{self.name}:1"
        self.participant = Participant(
            coordinator=self.coordinator,
            me=member_with(self.backends, self.name),
            backends=self.backends,
            clock=SystemClock(),
            rng=random.Random(self.name),
            limits=Limits(),
            connect=partial(self._wires.connect, self.name),
            lease_ms=_LEASE_MS,
        )
        self._wires.plugged[address] = self.participant.peers
        await self.participant.start(address)

    async def stop(self) -> None:
        """As SIGTERM does."""
        await self.participant.drain()
        await self._end()

    async def die(self) -> None:
        """As `kill -9` does, as far as that is possible within a process: nobody is told, nothing is finished."""
        self._wires.plugged.pop(f"{self.name}:1", None)
        for logical_queue in self.participant.host.all_logical_queues():
            logical_queue._closed = True
            for task in logical_queue._tasks:
                task.cancel()
        participant = self.participant
        for task in (*participant._tasks, *participant.membership._tasks):
            task.cancel()
        await participant.peers.close()
        await self.coordinator.close()
        participant.host._closed = True

    async def _end(self) -> None:
        self._wires.plugged.pop(f"{self.name}:1", None)
        await self.participant.close()
        await self.coordinator.close()
        for backend in self.backends.values():
            await backend.close()

    # What clients do here.

    async def create(self, name: str, **settings: object) -> None:
        await self.participant.router.management.create_queue(QueueSettings(queue_name=name, **settings))  # type: ignore[arg-type]

    async def produce(self, name: str, *payloads: bytes) -> Produced:
        items = [Item(payload) for payload in payloads]
        return await self.participant.router.produce(name, items, [], sum(map(len, payloads)), TIMEOUT_MS)

    def reserve(self, name: str, count: int = 1, timeout_ms: int = TIMEOUT_MS) -> asyncio.Future[Reservation]:
        return self.participant.router.reserve(name, count, f"at {self.name}", timeout_ms)

    async def complete(self, name: str, given: Reservation) -> None:
        ids = [item_id for run in given.runs for item_id in run.ids()]
        await self.participant.router.complete(name, given.partition, ids, TIMEOUT_MS)

    def owns(self, name: str) -> set[int]:
        return {number for each in self.participant.host.logical_queues(name) for number in each.members}


def payloads(given: Reservation) -> list[bytes]:
    return [item.payload for run in given.runs for item in run.items]


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(30):
            while True:
                held = condition()
                if held if isinstance(held, bool) else await held:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited in vain until {what}") from None


class Trio:
    def __init__(self, folder: Path) -> None:
        self.wires = Wires()
        self.sites = [Site(name, folder, self.wires) for name in ("a", "b", "c")]
        self.gone: set[str] = set()

    @property
    def alive(self) -> list[Site]:
        return [site for site in self.sites if site.name not in self.gone]

    async def start(self) -> None:
        for site in self.sites:
            await site.start()
        await until(lambda: all(len(s.participant.membership.members) == 3 for s in self.sites), "all see each other")

    async def until_spread(self, name: str, partitions: int) -> None:
        """Until each partition is owned once, and everybody who lives owns some and knows of the others."""

        def spread() -> bool:
            owned = [site.owns(name) for site in self.alive]
            everywhere = {site.participant.catalog.assignment(name) for site in self.alive}
            opened = all(
                site.participant.host.is_open(name, site.participant.catalog.assignment(name).epoch)
                for site in self.alive
            )
            return (
                all(owned)
                and sorted(number for numbers in owned for number in numbers) == list(range(partitions))
                and len(everywhere) == 1
                and opened
            )

        await until(spread, f"'{name}' is spread over all")

    async def remove(self, site: Site, *, kill: bool) -> None:
        self.gone.add(site.name)
        await (site.die() if kill else site.stop())

    async def stop(self) -> None:
        for site in self.alive:
            await site._end()
        for site in self.sites:
            if site.name in self.gone:
                for backend in site.backends.values():
                    await backend.close()


@asynccontextmanager
async def trio_in(folder: Path) -> AsyncIterator[Trio]:
    trio = Trio(folder)
    await trio.start()
    try:
        yield trio
    finally:
        await trio.stop()
