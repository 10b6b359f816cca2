"""What is stored is enough: a logical queue that is killed at any moment comes back with the same items and leases."""

from __future__ import annotations

import asyncio

from querator import cold_path
from querator.items import Item
from tests.core.rig import LEASE_MS, TIMEOUT_MS, Rig


async def test_a_lease_does_not_name_a_block_that_others_ended(rig: Rig) -> None:
    """A lease over two blocks whose part of the first is done comes back without it, once that block is gone."""
    await rig.open()
    await rig.produce("a0", "a1")
    await rig.produce("b0")
    alone, spanning = await rig.reserve(1), await rig.reserve(2)
    assert spanning.payloads == ["a1", "b0"]
    await rig.complete(spanning.ids[:1])
    await rig.complete(alone.ids)
    await rig.crash_and_reopen()
    assert (rig.stats().ready, rig.stats().leased) == (0, 1)
    await rig.pass_ms(LEASE_MS)
    assert (await rig.reserve(1)).payloads == ["b0"]


async def test_items_that_are_unfit_as_soon_as_they_are_written_are_not_stored(rig: Rig) -> None:
    """A block whose items are all out of attempts when it is written does not come back after a restart."""
    await rig.open(max_attempts=3)
    await rig.import_items([Item(payload=b"x", attempts=5)])
    importing = asyncio.ensure_future(cold_path.import_items(rig.logical_queue, 0, [Item(payload=b"y", attempts=5)]))
    waiting = rig.ask(1)
    await rig.answer(importing)
    await rig.quiet()
    assert rig.stats().total == 0
    waiting.cancel()
    await rig.crash_and_reopen()
    assert await rig.payloads() == []
    await rig.check_counters()


async def test_a_lease_cleared_in_the_turn_of_its_renewal_is_gone(rig: Rig) -> None:
    """A destructive clear beside a renewal leaves no lease behind in storage."""
    await rig.open()
    await rig.produce("a")
    given = await rig.reserve(1)
    clearing = asyncio.ensure_future(cold_path._clear_leased(rig.logical_queue, rig.member()))
    renewing = rig.logical_queue.renew(0, given.ids, TIMEOUT_MS, 0)
    await rig.answer(clearing)
    await rig.answer(asyncio.wait([renewing]))
    await rig.crash_and_reopen()
    assert rig.stats().leased == 0
    await rig.check_counters()
