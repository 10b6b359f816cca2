"""A lease by a clock that the test turns: when it is renewed, and when it is given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cluster.lease import CoordinationError, Lease
from querator.clock import ManualClock

TTL_MS = 10_000
GIVEN_UP_MS = 8_000  # what is left then is the margin


class Keeper:
    """The coordinator's side: answers renewals when the test lets it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.granted_at_ms = self.clock.now_ms()
        self.asked_at_ms: list[int] = []
        self.answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.lease = Lease(
            lease_id=1,
            ttl_ms=TTL_MS,
            sent_at_ms=self.granted_at_ms,
            clock=self.clock,
            renew=self._renew,
            end=self._end,
        )

    async def _renew(self, _lease_id: int, _timeout_ms: int) -> bool:
        self.asked_at_ms.append(self.clock.now_ms())
        return await asyncio.shield(self.answer)

    async def _end(self, lease_id: int) -> None:
        assert lease_id == 1

    async def advance(self, by_ms: int) -> None:
        """A step at a time, with everybody getting a turn in between."""
        for _ in range(by_ms // 100):
            self.clock.advance(100)
            for _ in range(5):
                await asyncio.sleep(0)

    def reply(self, answer: bool | Exception) -> None:
        waiting, self.answer = self.answer, asyncio.get_running_loop().create_future()
        if isinstance(answer, bool):
            waiting.set_result(answer)
        else:
            waiting.set_exception(answer)


@pytest.fixture
async def keeper() -> AsyncIterator[Keeper]:
    keeper = Keeper()
    yield keeper
    keeper.answer.cancel()
    await keeper.lease.abandon()


async def test_without_an_answer_it_is_given_up_before_its_end(keeper: Keeper) -> None:
    """The margin is left when `lost` is set, and not before."""
    await keeper.advance(GIVEN_UP_MS - 100)
    assert keeper.asked_at_ms
    assert not keeper.lease.lost.is_set()
    assert keeper.lease.remaining_ms() == 100
    await keeper.advance(100)
    assert keeper.lease.lost.is_set()
    assert keeper.lease.remaining_ms() == 0


async def test_an_answered_renewal_counts_from_when_it_was_sent(keeper: Keeper) -> None:
    """An answer that was long under way does not make the lease longer than the coordinator knows of."""
    while not keeper.asked_at_ms:
        await keeper.advance(100)
    await keeper.advance(3000)
    keeper.reply(True)
    await keeper.advance(100)
    sent_at_ms = keeper.asked_at_ms[0]
    assert keeper.lease.remaining_ms() == sent_at_ms + GIVEN_UP_MS - keeper.clock.now_ms()


async def test_a_late_answer_does_not_bring_it_back(keeper: Keeper) -> None:
    """Whoever acted on the loss must not find the lease alive again."""
    await keeper.advance(GIVEN_UP_MS)
    keeper.reply(True)
    await keeper.advance(1000)
    assert keeper.lease.lost.is_set()
    assert keeper.lease.remaining_ms() == 0


async def test_it_is_lost_at_once_when_the_coordinator_has_forgotten_it(keeper: Keeper) -> None:
    """An answer that it is gone needs no waiting."""
    while not keeper.asked_at_ms:
        await keeper.advance(100)
    keeper.reply(False)
    await keeper.advance(100)
    assert keeper.lease.lost.is_set()


async def test_a_renewal_that_failed_is_tried_again(keeper: Keeper) -> None:
    """More often than renewals are due, so that one success in the remaining time is enough."""
    while not keeper.asked_at_ms:
        await keeper.advance(100)
    for _ in range(3):
        asked = len(keeper.asked_at_ms)
        keeper.reply(CoordinationError("away"))
        await keeper.advance(1000)
        assert len(keeper.asked_at_ms) == asked + 1
    keeper.reply(True)
    await keeper.advance(100)
    assert keeper.lease.remaining_ms() == keeper.asked_at_ms[3] + GIVEN_UP_MS - keeper.clock.now_ms()


async def test_time_that_passed_at_once_counts(keeper: Keeper) -> None:
    """After a pause of the process `remaining_ms` says so, even before any timer had a chance."""
    keeper.clock._now_ms += TTL_MS
    assert keeper.lease.remaining_ms() == 0
