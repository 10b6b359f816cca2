"""Reading beside writing: windows, re-reads of leased items and eviction, under races that the fault injector stages."""

from __future__ import annotations

import asyncio

import pytest

from querator import cold_path
from querator.errors import InvalidRequest, NotLeased
from querator.items import Item
from querator.limits import Limits
from querator.requests import Scheduled
from storage.faulty import Call
from tests.core.rig import LEASE_MS, LOST_AFTER, TIMEOUT_MS, TINY, Rig, handout


def numbers(count: int) -> list[str]:
    return [f"{number:04}" for number in range(count)]


async def fill(rig: Rig, count: int) -> list[str]:
    """As many items, each produced by a call of its own."""
    payloads = numbers(count)
    for payload in payloads:
        await rig.produce(payload)
    return payloads


async def test_a_backlog_far_beyond_the_window_comes_out_whole_and_in_order(rig: Rig) -> None:
    """Read-ahead neither loses, repeats nor reorders what does not fit into memory."""
    await rig.open(limits=TINY)
    payloads = await fill(rig, 60)
    assert rig.member().state.window_items <= TINY.window_items + TINY.block_items
    await rig.check_counters()
    assert await rig.drain(at_once=3) == payloads
    assert (rig.stats().total, rig.member().state.window_items) == (0, 0)


async def test_a_lease_larger_than_the_held_bytes_expires(rig: Rig) -> None:
    """Payloads that were dropped from memory are read again when their lease runs out, however large it is."""
    await rig.open(limits=Limits(block_items=2, block_bytes=64, held_bytes=40))
    await rig.produce(*numbers(20))
    given = await rig.reserve(20)
    await rig.pass_ms(LEASE_MS)
    await rig.until(lambda: rig.stats().ready == len(given.ids), "the items to come back")
    assert sorted(await rig.drain()) == numbers(20)


async def test_a_retry_of_more_than_the_held_bytes_is_answered(rig: Rig) -> None:
    """A retry whose items do not fit into memory together is done all the same."""
    await rig.open(limits=Limits(block_items=2, block_bytes=64, held_bytes=40))
    await rig.produce(*numbers(20))
    given = await rig.reserve(20)
    await rig.retry(given.ids)
    assert await rig.drain() == numbers(20)


async def test_an_expiry_reads_what_was_evicted(rig: Rig) -> None:
    """One item of an evicted block can be retried, and another completes without being read."""
    await rig.open(limits=TINY)
    await rig.produce("a", "b")
    await rig.produce("c", "d")
    first, second = await rig.reserve(2), await rig.reserve(2)
    await rig.retry(first.ids[:1])
    await rig.complete(second.ids)
    await rig.pass_ms(LEASE_MS)
    assert sorted(await rig.drain()) == ["a", "b"]


async def fill_pairs(rig: Rig, count: int) -> None:
    for number in range(count):
        await rig.produce(f"{number}a", f"{number}b")


async def test_a_delete_beside_a_read_ahead_marks_the_block_that_was_read(rig: Rig) -> None:
    """A delete whose commit is still under way when its block comes into the window takes effect there."""
    await rig.open(limits=TINY)
    await fill_pairs(rig, 8)
    victim = (await rig.listed())[5]
    assert int(victim.id[:16], 16) > rig.member().state.window_end
    granting = rig.gate()
    waiting = rig.ask(4)
    await rig.until(lambda: rig.member().turn is not None, "the reserve to be committed")
    deleting = asyncio.ensure_future(cold_path.delete_items(rig.logical_queue, 0, [victim.id]))
    await rig.until(lambda: bool(rig.member().inbox), "the delete to wait for its turn")
    committing = rig.gate()
    granting.set()
    given = handout(await rig.answer(waiting))
    await rig.until(lambda: not rig.member().reading, "the read-ahead")
    assert rig.member().state.window_end >= int(victim.id[:16], 16)
    committing.set()
    await rig.answer(deleting)
    await rig.complete(given.ids)
    assert victim.item.payload.decode() not in await rig.drain()
    await rig.check_counters()


async def test_a_block_that_is_read_before_its_commit_is_answered_counts_once(rig: Rig) -> None:
    """A read-ahead that sees a commit whose answer was lost does not make its items count twice."""
    await rig.open(limits=TINY)
    await fill(rig, 6)
    await rig.quiet()
    reading = rig.gate(Call.SCAN)
    given = handout(await rig.answer(rig.ask(4)))
    await rig.until(lambda: "ahead" in rig.member().reading, "the read-ahead to begin")
    rig.faults.add(Call.COMMIT, LOST_AFTER)
    opening = rig.gate(Call.OPEN)
    produced = rig.send("late")
    await rig.until(lambda: rig.faults.exhausted, "the answer to be lost")
    reading.set()
    await rig.until(lambda: not rig.member().reading, "the read-ahead")
    opening.set()
    await rig.answer(produced)
    await rig.complete(given.ids)
    await rig.check_counters()
    assert await rig.drain() == ["0004", "0005", "late"]


async def test_an_item_scheduled_in_the_past_beside_a_read_is_found(rig: Rig) -> None:
    """A produce that waited so long that its item is due when it is stored delays the item no further."""
    await rig.open()
    await rig.schedule("first", in_ms=1000)
    rig.clock.advance(1000)
    reading = rig.gate(Call.SCAN)
    committing = rig.gate()
    late = Scheduled(rig.clock.now_ms() - 500, Item(payload=b"late"))
    produced = rig.logical_queue.produce([], [late], 4, TIMEOUT_MS)
    await rig.until(lambda: rig.faults.exhausted)
    reading.set()
    await rig.until(lambda: bool(rig.member().state.due), "the due item to be read")
    committing.set()
    await rig.answer(produced)
    await rig.quiet()
    await rig.pass_ms(10)
    await rig.pass_ms(10)
    assert sorted(await rig.drain()) == ["first", "late"]


@pytest.mark.parametrize("slot", ["-01", "+01", "0_1", " 01", "01 "])
async def test_an_id_that_only_looks_like_a_number_is_refused(rig: Rig, slot: str) -> None:
    """No text but the exact form of an id reaches the arithmetic of slots, and a hostile one harms nobody else."""
    await rig.open()
    await rig.produce("a", "b")
    given = await rig.reserve(2)
    hostile = given.ids[0][:16] + slot + given.ids[0][19:]
    with pytest.raises(InvalidRequest):
        await rig.complete([hostile])
    with pytest.raises(InvalidRequest):
        await rig.delete([hostile])
    await rig.complete(given.ids)
    assert rig.stats().total == 0


async def test_an_unknown_id_is_named(rig: Rig) -> None:
    """An id with a place that never was is refused by name."""
    await rig.open()
    with pytest.raises(NotLeased, match="0000000000000001"):
        await rig.complete(["0000000000000001" + "000" + "0001"])
