"""Counters never drift: whatever happens, in whatever order, stats equal the contents as listed."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from querator.errors import QueratorError
from querator.limits import Limits
from tests.core.rig import LEASE_MS, TINY, Handout, Rig


class Chaos:
    """Random calls of a careless consumer."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig = rig
        self.random = random.Random(seed)
        self.given: list[Handout] = []
        self.sent = 0

    async def step(self) -> None:
        actions = [self.produce] * 4 + [self.reserve] * 4 + [self.end] * 4
        actions += [self.schedule, self.wait, self.delete, self.reopen, self.listing]
        with suppress(QueratorError):  # ids that are stale by now are refused, as they should be
            await self.random.choice(actions)()

    async def produce(self) -> None:
        count = self.random.randint(1, 6)
        self.sent += count
        await self.rig.produce(*(f"{self.sent}-{number}" for number in range(count)))

    async def schedule(self) -> None:
        await self.rig.schedule("later", in_ms=self.random.randint(1, LEASE_MS))

    async def reserve(self) -> None:
        partitions = self.rig.logical_queue.stats().partitions
        if any(partition.ready for partition in partitions):
            self.given.append(await self.rig.reserve(self.random.randint(1, 8)))

    async def end(self) -> None:
        if not self.given:
            return
        given = self.random.choice(self.given)
        ids = self.random.sample(given.ids, self.random.randint(1, len(given.ids)))
        partition = given.partition
        match self.random.randrange(5):
            case 0:
                await self.rig.retry(ids, partition=partition)
            case 1:
                await self.rig.retry(ids, retry_at_ms=self.rig.clock.now_ms() + 1000, partition=partition)
            case 2:
                await self.rig.renew(ids, partition=partition)
            case 3:
                await self.rig.retry(ids, dead=True, partition=partition)
            case _:
                await self.rig.complete(ids, partition)

    async def wait(self) -> None:
        await self.rig.pass_ms(self.random.choice([10, LEASE_MS // 3, LEASE_MS]))

    async def delete(self) -> None:
        partition = self.random.randrange(len(self.rig.logical_queue.members))
        if views := await self.rig.listed(partition):
            chosen = self.random.sample(views, min(len(views), 3))
            await self.rig.delete([view.id for view in chosen if not view.is_leased], partition)

    async def reopen(self) -> None:
        await self.rig.crash_and_reopen()

    async def listing(self) -> None:
        await self.rig.check_counters()


@pytest.mark.parametrize("limits", [Limits(), TINY], ids=["roomy", "tiny"])
@pytest.mark.parametrize("seed", range(6))
async def test_counters_never_drift(rig: Rig, limits: Limits, seed: int) -> None:
    """After random operations and restarts stats equal the contents, and the queue can be emptied to zero."""
    await rig.open(1 + seed % 3, limits=limits, max_attempts=seed % 4, expire_timeout_ms=5 * LEASE_MS * (seed % 2))
    chaos = Chaos(rig, seed)
    for _ in range(60):
        await chaos.step()
    await rig.check_counters()
    rig.update(max_attempts=0)
    await rig.clear(scheduled=True)
    await rig.pass_ms(2 * LEASE_MS)
    await rig.drain()
    await rig.check_counters()
    for partition in rig.logical_queue.stats().partitions:
        assert (partition.total, partition.scheduled, partition.outbox) == (0, 0, 0)
    for member in rig.logical_queue.members.values():
        state = member.state
        assert (len(state.blocks), len(state.done), len(state.leases)) == (0, 0, 0)
        assert (state.window_bytes, state._held_bytes, len(state._held)) == (0, 0, 0)
