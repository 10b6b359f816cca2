"""Several instances in one process, each with its doors for clients, on one coordination file and one SQLite file.

They reach each other by links that a test can cut. `async with sites(folder, 3) as cluster`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from api.server import Server
from cluster.one_host import OneHostCoordinator
from cluster.participant import Participant
from querator.clock import SystemClock
from querator.limits import Limits
from querator.queues import QueueSettings
from storage import SqliteBackend
from tests.cluster.links import Wires
from tests.cluster.members import member_with

_LEASE_MS = 3_000
_PATIENCE_S = 30


class Site:
    """One instance, with its doors."""

    def __init__(self, name: str, participant: Participant, server: Server) -> None:
        self.name = name
        self.participant = participant
        self.server = server
        self.address = ""  # of HTTP

    def owned(self, queue_name: str) -> list[int]:
        return sorted(number for each in self.participant.host.logical_queues(queue_name) for number in each.members)


class Sites:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.wires = Wires()
        self.all: list[Site] = []
        self._session = session

    def __getitem__(self, index: int) -> Site:
        return self.all[index]

    async def create(self, queue_name: str, partitions: int, logical_queues: int, **settings: Any) -> None:
        """Make a queue, and wait until everybody knows who owns it."""
        wanted = QueueSettings(
            queue_name=queue_name, requested_partitions=partitions, logical_queues=logical_queues, **settings
        )
        await self[0].participant.router.management.create_queue(wanted)
        await self.until(lambda: self._is_open(queue_name, partitions), f"'{queue_name}' is open")

    def _is_open(self, queue_name: str, partitions: int) -> bool:
        hosts = [site.participant.host for site in self.all]
        assignments = {host.catalog.assignment(queue_name) for host in hosts}
        owned = sorted(number for site in self.all for number in site.owned(queue_name))
        return (
            len(assignments) == 1
            and owned == list(range(partitions))
            and all(host.is_open(queue_name, next(iter(assignments)).epoch) for host in hosts)
        )

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not condition():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"waited in vain until {what}") from None

    def owner(self, queue_name: str, partition: int) -> Site:
        return next(site for site in self.all if partition in site.owned(queue_name))

    def stranger(self, queue_name: str) -> Site:
        """An instance that owns nothing of a queue."""
        return next(site for site in self.all if not site.owned(queue_name))

    def cut_off(self, site: Site) -> None:
        """The others do not reach it any more. They go on, and find each other again in a moment."""
        del self.wires.plugged[site.name]
        self.wires.cut_all()

    async def stop(self, site: Site) -> None:
        """As SIGTERM does: it hands over, answers what waits, and leaves."""
        self.all.remove(site)
        await site.participant.drain()
        await site.server.stop()
        self.wires.plugged.pop(site.name, None)
        await site.participant.close()

    async def answered(self, site: Site, call: str) -> int:
        """How many calls of a client it has answered with success."""
        async with self._session.get(f"http://{site.address}/metrics") as response:
            text = await response.text()
        label = f'querator_requests_total{{call="{call}",code="200"}} '
        return sum(int(float(line.removeprefix(label))) for line in text.splitlines() if line.startswith(label))

    async def send(
        self, site: Site, call: str, headers: dict[str, str] | None = None, /, **fields: Any
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body of an answer; a redirect is not followed."""
        async with self._session.post(
            f"http://{site.address}/{call}",
            data=msgspec.json.encode(fields),
            headers={"Content-Type": "application/json", **(headers or {})},
            allow_redirects=False,
        ) as response:
            return response.status, dict(response.headers), msgspec.json.decode(await response.read())

    async def ok(self, site: Site, call: str, headers: dict[str, str] | None = None, /, **fields: Any) -> Any:
        status, _, body = await self.send(site, f"v1/{call}", headers, **fields)
        assert status == 200, body
        return body


@asynccontextmanager
async def sites(
    folder: Path, count: int, *, fast_door: bool = True, redirect: bool = False, lease_ms: int = _LEASE_MS
) -> AsyncIterator[Sites]:
    timeout = aiohttp.ClientTimeout(total=60)
    async with AsyncExitStack() as stack:
        cluster = Sites(await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout)))
        for name in "abcdefgh"[:count]:
            cluster.all.append(await _join(stack, cluster, name, folder, fast_door, redirect, lease_ms))
        await cluster.until(
            lambda: all(_sees_addresses(site, count) for site in cluster.all), "all know where the others are"
        )
        yield cluster


async def _join(
    stack: AsyncExitStack, cluster: Sites, name: str, folder: Path, fast_door: bool, redirect: bool, lease_ms: int
) -> Site:
    coordinator = await OneHostCoordinator.open(folder / "cluster.db")
    stack.push_async_callback(coordinator.close)
    backend = await SqliteBackend.open(name="disk", path=folder / "disk.db", synchronous="off")
    stack.push_async_callback(backend.close)
    participant = Participant(
        coordinator=coordinator,
        me=member_with({"disk": backend}, name),
        backends={"disk": backend},
        clock=SystemClock(),
        rng=random.Random(name),
        limits=Limits(),
        connect=partial(cluster.wires.connect, name),
        lease_ms=lease_ms,
    )
    cluster.wires.plugged[name] = participant.peers
    stack.push_async_callback(participant.close)
    await participant.start(name)
    site = Site(name, participant, Server(router=participant.router, fast_door=fast_door, redirect=redirect))
    stack.push_async_callback(site.server.stop)
    [(host, port)] = await site.server.start([("127.0.0.1", 0)])
    site.address = f"{host}:{port}"
    await participant.update((site.address,))
    return site


def _sees_addresses(site: Site, count: int) -> bool:
    members = site.participant.membership.members.values()
    return len(members) == count and all(member.addresses for member in members)
