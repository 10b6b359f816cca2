"""A host with a router over real parts: a coordinator in a file, backends behind the fault injector."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.catalog import Catalog
from cluster.host import Host
from cluster.one_host import OneHostCoordinator
from cluster.participant import Participant
from cluster.router import Router
from querator.clock import SystemClock
from querator.limits import Limits
from querator.waist import Backend
from storage import FaultyBackend, MemoryBackend, SqliteBackend
from tests.cluster.members import member_with


class Station:
    """One instance that can be stopped and started again on the same data."""

    def __init__(self, folder: Path, inner: dict[str, Backend]) -> None:
        self._folder = folder
        self.backends = {name: FaultyBackend(backend) for name, backend in inner.items()}
        self.coordinator: OneHostCoordinator
        self.participant: Participant
        self.catalog: Catalog
        self.host: Host
        self.router: Router

    async def start(self) -> None:
        self.coordinator = await OneHostCoordinator.open(self._folder / "coordination.db")
        self.participant = Participant(
            coordinator=self.coordinator,
            me=member_with(self.backends),
            backends=self.backends,
            clock=SystemClock(),
            rng=random.Random(1),
            limits=Limits(),
        )
        self.catalog = self.participant.catalog
        self.host = self.participant.host
        self.router = self.participant.router
        try:
            await self.participant.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        await self.participant.close()
        await self.coordinator.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()


@pytest.fixture(params=["memory", "sqlite"])
async def station(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Station]:
    """With two backends, of which the second takes half as many partitions."""
    inner: dict[str, Backend]
    if request.param == "memory":
        inner = {"one": MemoryBackend("one", 1.0), "two": MemoryBackend("two", 0.5)}
    else:
        inner = {
            name: await SqliteBackend.open(
                name=name, path=tmp_path / f"{name}.db", affinity=affinity, synchronous="off"
            )
            for name, affinity in (("one", 1.0), ("two", 0.5))
        }
    station = Station(tmp_path, inner)
    await station.start()
    yield station
    await station.stop()
    for backend in inner.values():
        await backend.close()
