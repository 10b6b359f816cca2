"""Items that die: with their origin to the dead queue, once, and away from the queue they came from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from querator.items import Item
from querator.relay import Entries, Relay
from querator.waist import Backend
from storage import FaultyBackend
from storage.faulty import Call, ScriptedFaults
from tests.core.rig import LEASE_MS, REFUSED, Rig


class Undertaker:
    """Carries what dies in one rig to another, and can be held up or made to fail after it delivered."""

    def __init__(self, source: Rig, dead: Rig) -> None:
        self.source = source
        self.dead = dead
        self.delivered = 0
        self.after = asyncio.Event()  # a delivery returns only once it is set
        self.after.set()

    def start(self) -> None:
        self.source.logical_queue.spawn(Relay(self.source.logical_queue, self.deliver).run())

    async def deliver(self, target: str, source_uid: int, entries: Entries) -> None:
        assert target == "dead"
        await self.dead.logical_queue.deliver(0, source_uid, entries)
        self.delivered += 1
        await self.after.wait()

    async def until_empty(self) -> None:
        await self.source.until(lambda: self.source.stats().outbox == 0, "the outbox to be empty")
        await self.dead.quiet()


@pytest.fixture
async def dead(inner: Backend) -> AsyncIterator[Rig]:
    faults = ScriptedFaults()
    dead = Rig(FaultyBackend(inner, faults), faults, name="dead", first_uid=100)
    yield await dead.open()
    await dead.kill()


@pytest.fixture
async def undertaker(rig: Rig, dead: Rig) -> Undertaker:
    await rig.open(dead_queue="dead", max_attempts=2)
    undertaker = Undertaker(rig, dead)
    undertaker.start()
    return undertaker


async def test_dead_true_dead_letters_with_its_origin(rig: Rig, dead: Rig, undertaker: Undertaker) -> None:
    """A rejected item is not deleted: it arrives in the dead queue and tells where it came from and why."""
    await rig.produce("a")
    given = await rig.reserve()
    await rig.retry(given.ids, dead=True)
    await undertaker.until_empty()
    assert rig.stats().total == 0
    (item,) = (await dead.reserve()).items
    assert (item.payload, item.attempts) == (b"a", 0)
    assert item.origin is not None
    assert (item.origin.queue_name, item.origin.id, item.origin.reason) == ("mail", given.ids[0], "rejected")
    assert (item.origin.attempts, item.origin.died_at) == (1, rig.clock.now_ms())


async def test_an_item_out_of_attempts_goes_to_the_dead_queue(rig: Rig, dead: Rig, undertaker: Undertaker) -> None:
    """After the last allowed hand-out ended without success the item is dead, and gone from the queue."""
    await rig.produce("a")
    await rig.retry((await rig.reserve()).ids)
    await rig.reserve()
    await rig.pass_ms(LEASE_MS)
    await undertaker.until_empty()
    assert await rig.payloads() == []
    (item,) = (await dead.reserve()).items
    assert item.origin is not None
    assert (item.origin.reason, item.origin.attempts) == ("attempts", 2)


async def test_an_expired_item_goes_to_the_dead_queue_and_leaves_the_queue(
    rig: Rig, dead: Rig, undertaker: Undertaker
) -> None:
    """Past its expire timeout an item is in the dead queue and nowhere else, without anybody asking for it."""
    rig.update(expire_timeout_ms=5000)
    await rig.produce("a")
    await rig.pass_ms(4000)
    assert await rig.payloads() == ["a"]
    await rig.pass_ms(1000)
    await undertaker.until_empty()
    assert await rig.payloads() == []
    assert rig.stats().total == 0
    (item,) = (await dead.reserve()).items
    assert item.origin is not None
    assert item.origin.reason == "expired"


async def test_without_a_dead_queue_the_dead_are_removed(rig: Rig) -> None:
    """An item that dies where nobody collects the dead is gone, and nothing waits in the outbox."""
    await rig.open(max_attempts=1)
    await rig.produce("a")
    await rig.retry((await rig.reserve()).ids)
    assert (rig.stats().total, rig.stats().outbox) == (0, 0)


async def test_a_kill_between_delivery_and_settle_does_not_deliver_twice(
    rig: Rig, dead: Rig, undertaker: Undertaker
) -> None:
    """An entry that arrived but is still in the outbox after a crash is recognised when it comes again."""
    await rig.produce("a", "b")
    given = await rig.reserve(2)
    undertaker.after.clear()
    await rig.retry(given.ids[:1], dead=True)
    await rig.until(lambda: undertaker.delivered == 1, "the delivery")
    await rig.crash_and_reopen()
    await dead.crash_and_reopen()
    assert rig.stats().outbox == 1
    undertaker.after.set()
    undertaker.start()
    await rig.retry(given.ids[1:], dead=True)
    await undertaker.until_empty()
    assert await dead.payloads() == ["a", "b"]


async def test_a_waiting_reserve_of_the_dead_queue_is_woken(rig: Rig, dead: Rig, undertaker: Undertaker) -> None:
    """A delivery is as good as a produce for who waits."""
    waiting = dead.ask()
    await dead.quiet()
    await rig.produce("a")
    await rig.retry((await rig.reserve()).ids, dead=True)
    assert (await rig.answer(waiting)).runs[0].items[0].payload == b"a"


async def test_mail_is_relayed_after_its_partition_recovered(rig: Rig, dead: Rig, undertaker: Undertaker) -> None:
    """An outbox is emptied as soon as its partition is well again, also if nothing else happens there."""
    await rig.produce("a")
    given = await rig.reserve()
    undertaker.after.clear()
    await rig.retry(given.ids, dead=True)
    await rig.until(lambda: undertaker.delivered == 1, "the delivery")
    rig.faults.add(Call.COMMIT, REFUSED)
    rig.faults.add(Call.OPEN, REFUSED, REFUSED, REFUSED)
    undertaker.after.set()
    await rig.until(lambda: rig.stats().state == "failing")
    await rig.recover()
    await rig.until(lambda: rig.stats().outbox == 0, "the outbox to be emptied")


async def test_mail_found_by_a_late_opening_is_relayed(rig: Rig, dead: Rig, undertaker: Undertaker) -> None:
    """A partition with mail that could not be opened at first sends it once it could."""
    await rig.produce("a")
    given = await rig.reserve()
    dead.backend.break_()
    await rig.retry(given.ids, dead=True)
    await rig.quiet()
    dead.backend.mend()
    rig.faults.add(Call.OPEN, REFUSED)
    await rig.crash_and_reopen()
    undertaker.start()
    await dead.recover()
    await rig.recover()
    await rig.until(lambda: rig.stats().outbox == 0, "the outbox to be emptied")
    assert await dead.payloads() == ["a"]


async def test_only_what_expired_dies_and_the_rest_costs_no_turns(rig: Rig, dead: Rig, undertaker: Undertaker) -> None:
    """After one item of a block has expired nothing is due until the next does."""
    now_ms = rig.clock.now_ms()
    await rig.import_items(
        [
            Item(payload=b"a", expire_at=now_ms + 1000),
            Item(payload=b"b", expire_at=now_ms + 9000),
        ]
    )
    await rig.pass_ms(1000)
    await undertaker.until_empty()
    assert await rig.payloads() == ["b"]
    await rig.quiet()
    assert rig.member().next_event_ms() == now_ms + 9000


async def test_a_leased_item_past_its_expiry_costs_no_turns(rig: Rig) -> None:
    """An item that expires under lease is looked at when the lease ends, not over and over until then."""
    await rig.open()
    now_ms = rig.clock.now_ms()
    await rig.import_items([Item(payload=b"a", expire_at=now_ms + 1000), Item(payload=b"b")])
    given = await rig.reserve()
    await rig.pass_ms(1000)
    assert rig.member().next_event_ms() == given.deadline_ms
    await rig.complete(given.ids)
