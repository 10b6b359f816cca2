"""A clock that steps back breaks neither order nor leases nor ids."""

from __future__ import annotations

from querator.clock import ManualClock
from tests.core.rig import LEASE_MS, Rig

HOUR_MS = 3_600_000


async def test_a_clock_that_steps_back_across_a_restart_keeps_the_order(rig: Rig) -> None:
    """Items produced under a lower clock come after those from before, and no id is given twice."""
    await rig.open()
    before = await rig.produce("a", "b")
    given = await rig.reserve()
    await rig.crash_and_reopen(ManualClock(rig.clock.now_ms() - HOUR_MS))
    after = await rig.produce("c", "d")
    assert sorted(before + after) == before + after
    assert len(set(before + after)) == 4
    await rig.complete(given.ids)
    assert await rig.drain() == ["b", "c", "d"]


async def test_ids_are_not_given_again_after_everything_is_gone(rig: Rig) -> None:
    """The highest id is remembered beyond the last item, whatever the clock says."""
    await rig.open()
    first = await rig.produce("a")
    await rig.drain()
    await rig.crash_and_reopen(ManualClock(rig.clock.now_ms() - HOUR_MS))
    second = await rig.produce("b")
    assert second > first
    given = await rig.reserve()
    await rig.complete(given.ids)


async def test_a_lease_survives_a_clock_that_steps_back(rig: Rig) -> None:
    """A lease given under a higher clock stays valid, can be completed, and one that is not ends in the end."""
    await rig.open()
    await rig.produce("a", "b")
    kept, lost = await rig.reserve(), await rig.reserve()
    await rig.crash_and_reopen(ManualClock(rig.clock.now_ms() - HOUR_MS))
    assert rig.stats().leased == 2
    await rig.complete(kept.ids)
    await rig.pass_ms(HOUR_MS + LEASE_MS)
    assert (await rig.reserve()).payloads == lost.payloads
    assert rig.stats().average_age_ms >= 0


async def test_a_graceful_restart_under_a_lower_clock_keeps_everything(rig: Rig) -> None:
    """Close and open again: the same items, the same counters, ages that are not negative."""
    await rig.open()
    await rig.produce("a")
    await rig.schedule("b", in_ms=1000)
    await rig.logical_queue.close()
    rig.clock = ManualClock(rig.clock.now_ms() - 10_000)
    await rig.take_over()
    assert (rig.stats().ready, rig.stats().scheduled, rig.stats().average_age_ms) == (1, 1, 0)
    await rig.pass_ms(11_000)
    assert await rig.drain() == ["a", "b"]
