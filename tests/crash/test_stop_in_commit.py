"""A stop that meets a reserve while its lease is being written: the one moment in which it neither waits nor has ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from api.server import Server
from cluster.one_host import OneHostCoordinator
from cluster.participant import Participant
from cluster.router import Router
from querator.clock import SystemClock
from querator.limits import Limits
from querator.waist import Backend
from storage import FaultyBackend, MemoryBackend
from storage.faulty import Call, Fault, NoFaults
from tests.cluster.members import member_with

PATIENCE_S = 30


class HeldCommits(NoFaults):
    """Once told so, holds every commit at a gate, and tells that one has come."""

    def __init__(self) -> None:
        self.holding = False
        self.came = asyncio.Event()
        self.gate = asyncio.Event()

    def next(self, call: Call, partition: int | None) -> Fault:
        if call is not Call.COMMIT or not self.holding:
            return super().next(call, partition)
        self.came.set()
        return Fault(gate=self.gate)


@asynccontextmanager
async def serving(folder: Path, faults: HeldCommits, fast_door: bool) -> AsyncIterator[tuple[Server, Router, str]]:
    limits = Limits()
    coordinator = await OneHostCoordinator.open(folder / "cluster.db")
    backend = FaultyBackend(MemoryBackend(name="memory-0"), faults)
    backends: dict[str, Backend] = {"memory-0": backend}
    participant = Participant(
        coordinator=coordinator,
        me=member_with(backends),
        backends=backends,
        clock=SystemClock(),
        rng=random.Random(1),
        limits=limits,
    )
    await participant.start()
    router = participant.router
    server = Server(router=router, limits=limits, fast_door=fast_door)
    try:
        [(_, port)] = await server.start([("127.0.0.1", 0)])
        yield server, router, f"http://127.0.0.1:{port}/v1"
    finally:
        faults.gate.set()
        await server.stop()
        await participant.close()
        await coordinator.close()


@pytest.mark.parametrize("fast_door", [True, False], ids=["fast", "full"])
async def test_a_reserve_that_is_told_to_try_again_was_no_attempt(tmp_path: Path, fast_door: bool) -> None:
    """A stop during a reserve's commit ends with the items at the client, or without an attempt that nobody made."""
    faults = HeldCommits()
    async with aiohttp.ClientSession() as session, serving(tmp_path, faults, fast_door) as (server, router, url):

        async def post(name: str, body: object) -> int:
            async with session.post(f"{url}/{name}", json=body) as answer:
                await answer.read()
                return answer.status

        assert await post("queues.create", {"queue_name": "mail"}) == 200
        assert await post("queue.produce", {"queue_name": "mail", "items": [{"utf8": "x"}]}) == 200
        faults.holding = True
        reserve = {"queue_name": "mail", "batch_size": 1, "client_id": "c", "request_timeout": "1m"}
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            reserving = group.create_task(post("queue.reserve", reserve))
            await faults.came.wait()
            stopping = group.create_task(server.stop())
            await asyncio.wait({reserving, stopping}, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
            faults.gate.set()
        if reserving.result() != 200:
            assert reserving.result() == 454
            async with asyncio.timeout(PATIENCE_S):
                reservation = await router.reserve("mail", 1, "next", PATIENCE_S * 1000, 0)
            assert [item.attempts for run in reservation.runs for item in run.items] == [0]
