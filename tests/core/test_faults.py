"""Storage that fails: never an answer of success for what is not stored, never the same items twice."""

from __future__ import annotations

import pytest

from querator.errors import PartitionFailing, RetryRequest, TimedOut
from storage.faulty import Call, Fault
from tests.core.rig import LOST_AFTER, LOST_BEFORE, REFUSED, TIMEOUT_MS, Rig, handout

FAILURES = pytest.mark.parametrize("fault", [REFUSED, LOST_BEFORE, LOST_AFTER], ids=lambda fault: fault.outcome.name)


@FAILURES
async def test_a_storage_error_is_never_answered_as_success(rig: Rig, fault: Fault) -> None:
    """A produce whose commit failed in any way is answered only once the items are stored, and they are stored once."""
    await rig.open()
    rig.faults.add(Call.COMMIT, fault)
    opening = rig.gate(Call.OPEN)
    produced = rig.send("a", "b")
    await rig.until(lambda: rig.stats().state == "failing")
    assert not produced.done()
    opening.set()
    await rig.recover()
    await rig.answer(produced)
    assert await rig.payloads() == ["a", "b"]
    await rig.crash_and_reopen()
    assert await rig.drain() == ["a", "b"]


@FAILURES
async def test_a_produce_goes_to_a_healthy_partition_and_is_written_once(rig: Rig, fault: Fault) -> None:
    """With another partition at hand a refused produce does not wait, and one in doubt is never written to both."""
    await rig.open(2)
    rig.faults.add(Call.COMMIT, fault)
    produced = await rig.answer(rig.send("a"))
    contents = [await rig.payloads(0), await rig.payloads(1)]
    assert contents[produced.partition] == ["a"]
    assert contents[1 - produced.partition] == []
    if fault is REFUSED:
        assert produced.partition == 1


async def test_a_produce_without_a_healthy_partition_times_out(rig: Rig) -> None:
    """Nobody waits longer than asked for, and a produce that was given up is not stored later."""
    await rig.open(2)
    rig.backend.break_()
    produced = rig.send("a", timeout_ms=5000)
    await rig.pass_ms(4000)
    assert not produced.done()
    await rig.pass_ms(1000)
    with pytest.raises(TimedOut):
        await rig.answer(produced)
    rig.backend.mend()
    await rig.recover()
    assert await rig.payloads(0) + await rig.payloads(1) == []


async def test_a_produce_that_timed_out_gives_its_place_free(rig: Rig) -> None:
    """What was answered does not count as waiting, also while no partition is healthy."""
    await rig.open()
    rig.backend.break_()
    produced = rig.send("a", timeout_ms=1000)
    cancelled = rig.send("b")
    await rig.until(lambda: rig.stats().state == "failing")
    cancelled.cancel()
    await rig.pass_ms(1000)
    assert produced.exception() is not None
    assert rig.logical_queue.stats().produce_waiting == 0


async def test_a_complete_is_refused_at_once_while_its_partition_fails(rig: Rig) -> None:
    """A complete whose commit is refused answers 454 and leaves the lease as it was."""
    await rig.open()
    await rig.produce("a")
    given = await rig.reserve()
    rig.faults.add(Call.COMMIT, REFUSED)
    with pytest.raises(PartitionFailing) as caught:
        await rig.complete(given.ids)
    assert caught.value.code == 454
    with pytest.raises(PartitionFailing):
        await rig.complete(given.ids)
    await rig.recover()
    await rig.complete(given.ids)
    assert rig.stats().total == 0


async def test_a_complete_whose_answer_was_lost_is_answered_by_what_is_stored(rig: Rig) -> None:
    """After a lost answer the partition's commit number tells whether the items are gone."""
    await rig.open()
    await rig.produce("a", "b")
    first, second = await rig.reserve(), await rig.reserve()
    rig.faults.add(Call.COMMIT, LOST_AFTER)
    await rig.complete(first.ids)
    rig.faults.add(Call.COMMIT, LOST_BEFORE)
    with pytest.raises(PartitionFailing):
        await rig.complete(second.ids)
    await rig.recover()
    assert await rig.payloads() == ["b"]
    await rig.complete(second.ids)


@FAILURES
async def test_a_reserve_survives_a_failing_commit_with_one_lease(rig: Rig, fault: Fault) -> None:
    """A waiting reserve gets its items once the partition is well again, each under exactly one lease."""
    await rig.open()
    await rig.produce("a", "b")
    rig.faults.add(Call.COMMIT, fault)
    waiting = rig.ask(2)
    await rig.until(lambda: rig.faults.exhausted)
    await rig.recover()
    given = handout(await rig.answer(waiting))
    assert given.payloads == ["a", "b"]
    assert (rig.stats().ready, rig.stats().leased) == (0, 2)
    await rig.crash_and_reopen()
    assert (rig.stats().ready, rig.stats().leased) == (0, 2)
    await rig.complete(given.ids)
    await rig.check_counters()


@pytest.mark.parametrize("fault", [LOST_BEFORE, LOST_AFTER], ids=lambda fault: fault.outcome.name)
async def test_a_reserve_in_doubt_is_answered_by_another_partition(rig: Rig, fault: Fault) -> None:
    """Nobody waits for items of a partition that fails while another has some; what it may have leased counts no attempt."""
    await rig.open(2)
    await rig.produce("a")
    rig.faults.add(Call.COMMIT, fault)
    opening = rig.gate(Call.OPEN)
    waiting = rig.ask()
    await rig.until(lambda: rig.stats(0).state == "failing")
    assert not waiting.done()
    await rig.produce("b")
    given = handout(await rig.answer(waiting))
    assert (given.partition, given.payloads) == (1, ["b"])
    opening.set()
    await rig.recover()
    again = await rig.reserve()
    assert (again.partition, again.payloads) == (0, ["a"])
    assert [item.attempts for item in again.items] == [0]
    await rig.complete(given.ids, 1)
    await rig.complete(again.ids)
    await rig.check_counters()


async def test_a_failing_partition_delays_only_its_own_requests(rig: Rig) -> None:
    """While one partition hangs in a commit, produces and reserves go on at the other."""
    await rig.open(2)
    gate = rig.gate(uid=1)
    slow = rig.send("slow")
    await rig.until(lambda: rig.member(0).turn is not None)
    await rig.answer(rig.send("quick"))
    assert (await rig.reserve()).payloads == ["quick"]
    assert not slow.done()
    gate.set()
    await rig.answer(slow)


async def test_a_partition_that_cannot_be_opened_is_tried_again(rig: Rig) -> None:
    """A partition that fails at start serves as soon as it is well."""
    await rig.open()
    await rig.produce("a")
    rig.faults.add(Call.OPEN, REFUSED, REFUSED)
    await rig.crash_and_reopen()
    assert rig.stats().state == "failing"
    await rig.recover()
    assert await rig.drain() == ["a"]


async def test_a_failed_read_does_not_lose_items(rig: Rig) -> None:
    """A scan that fails is repeated, and what it was to bring comes."""
    await rig.open()
    await rig.schedule("a", in_ms=100)
    rig.faults.add(Call.SCAN, REFUSED)
    await rig.pass_ms(100)
    await rig.recover()
    await rig.pass_ms(10)
    assert await rig.drain() == ["a"]


async def test_a_second_owner_makes_the_first_refuse_everything(rig: Rig) -> None:
    """Once another owner has opened the partition with a higher epoch, the old one can neither write nor answer."""
    await rig.open()
    await rig.produce("a", "b")
    given = await rig.reserve()
    old = await rig.take_over()
    produced = old.produce([], [], 0, 1000)
    await rig.answer(produced)  # nothing to store, nothing to refuse
    with pytest.raises(RetryRequest):
        await rig.answer(old.complete(0, given.ids, TIMEOUT_MS))
    with pytest.raises(RetryRequest):
        await rig.answer(old.complete(0, given.ids, TIMEOUT_MS))
    waiting = old.reserve(1, "consumer", 1000, 0)
    rig.clock.advance(1000)
    with pytest.raises(RetryRequest):
        await rig.answer(waiting)
    assert old.stats().partitions[0].state == "unavailable"
    await rig.complete(given.ids)
    assert await rig.drain() == ["b"]
    await old.close()
