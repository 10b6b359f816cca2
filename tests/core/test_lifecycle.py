"""Attempts, leases, retries and backoff, as a consumer meets them."""

from __future__ import annotations

import pytest

from querator.errors import InvalidRequest, NotLeased
from querator.queues import RetryPolicy
from querator.requests import RetryItem
from tests.core.rig import LEASE_MS, TIMEOUT_MS, Rig, handout


async def test_the_last_allowed_attempt_may_finish_during_its_lease(rig: Rig) -> None:
    """An item is not taken from a consumer whose lease is valid: neither for its attempts nor for its age."""
    await rig.open(max_attempts=1, expire_timeout_ms=1000)
    await rig.produce("a", "b")
    given = await rig.reserve()
    await rig.pass_ms(LEASE_MS - 100)
    assert await rig.payloads() == ["a"]
    await rig.complete(given.ids)
    assert rig.stats().total == 0


async def test_a_failed_complete_keeps_nothing_of_its_effect(rig: Rig) -> None:
    """One id that is not leased among good ones refuses the call, names it, and completes none of them."""
    await rig.open()
    ids = await rig.produce("a", "b", "c")
    given = await rig.reserve(2)
    with pytest.raises(NotLeased, match=ids[2]):
        await rig.complete([*given.ids, ids[2]])
    assert (rig.stats().ready, rig.stats().leased) == (1, 2)
    await rig.crash_and_reopen()
    assert (rig.stats().ready, rig.stats().leased) == (1, 2)
    await rig.complete(given.ids)


async def test_a_failed_retry_or_renew_keeps_nothing_of_its_effect(rig: Rig) -> None:
    """All or nothing holds for giving back and for renewing alike."""
    await rig.open()
    ids = await rig.produce("a", "b")
    given = await rig.reserve()
    with pytest.raises(NotLeased, match=ids[1]):
        await rig.retry([given.ids[0], ids[1]])
    with pytest.raises(NotLeased, match=ids[1]):
        await rig.renew([given.ids[0], ids[1]], 10 * LEASE_MS)
    assert (await rig.listed())[0].lease_deadline_ms == given.deadline_ms
    assert (rig.stats().ready, rig.stats().leased) == (1, 1)


@pytest.mark.parametrize("call", ["complete", "retry", "renew"])
async def test_duplicate_ids_are_refused(rig: Rig, call: str) -> None:
    """A call that names an item twice is a mistake, and changes nothing."""
    await rig.open()
    await rig.produce("a", "b")
    given = await rig.reserve(2)
    with pytest.raises(InvalidRequest, match="twice"):
        await getattr(rig, call)([*given.ids, given.ids[0]])
    assert rig.stats().leased == 2


async def test_ids_from_an_earlier_hand_out_complete_nothing(rig: Rig) -> None:
    """Whoever lost an item, by expiry or by retry, cannot complete, retry or renew it under the old id."""
    await rig.open()
    await rig.produce("a")
    first = await rig.reserve()
    await rig.pass_ms(LEASE_MS)
    second = await rig.reserve()
    assert second.payloads == ["a"]
    for call in (rig.complete, rig.retry, rig.renew):
        with pytest.raises(NotLeased):
            await call(first.ids)
    await rig.retry(second.ids)
    third = await rig.reserve()
    with pytest.raises(NotLeased):
        await rig.complete(second.ids)
    await rig.complete(third.ids)
    with pytest.raises(NotLeased):
        await rig.complete(third.ids)


async def test_an_id_with_the_wrong_attempt_is_stale(rig: Rig) -> None:
    """The attempt is part of the id: the right place alone names nothing."""
    await rig.open()
    await rig.produce("a")
    given = await rig.reserve()
    with pytest.raises(NotLeased):
        await rig.complete([given.ids[0][:-1] + "2"])
    await rig.complete(given.ids)


async def test_a_renewal_moves_the_deadline_for_good(rig: Rig) -> None:
    """A renewed lease ends at the new deadline, also after a restart."""
    await rig.open()
    await rig.produce("a")
    given = await rig.reserve()
    await rig.pass_ms(LEASE_MS // 2)
    deadline_ms = await rig.renew(given.ids)
    assert deadline_ms == rig.clock.now_ms() + LEASE_MS
    await rig.crash_and_reopen()
    await rig.pass_ms(deadline_ms - rig.clock.now_ms() - 10)
    assert rig.stats().leased == 1
    await rig.pass_ms(10)
    assert (rig.stats().ready, rig.stats().leased) == (1, 0)


async def test_renewing_a_part_of_a_lease_splits_it(rig: Rig) -> None:
    """The renewed items live on, the others end with the old deadline; a restart in between changes nothing."""
    await rig.open()
    await rig.produce("a", "b", "c")
    given = await rig.reserve(3)
    await rig.renew(given.ids[1:2], 5 * LEASE_MS)
    assert [view.lease_deadline_ms == given.deadline_ms for view in await rig.listed()] == [True, False, True]
    await rig.crash_and_reopen()
    await rig.pass_ms(LEASE_MS)
    assert (rig.stats().ready, rig.stats().leased) == (2, 1)
    await rig.complete(given.ids[1:2])
    with pytest.raises(NotLeased):
        await rig.complete(given.ids[:1])
    await rig.check_counters()


async def test_a_complete_in_the_turn_of_the_expiry_wins(rig: Rig) -> None:
    """A complete that arrives with the deadline is done, the rest of the lease comes back, and nothing counts twice."""
    await rig.open()
    await rig.produce("a", "b", "c")
    given = await rig.reserve(3)
    rig.clock.advance(LEASE_MS)
    await rig.complete(given.ids[1:2])
    await rig.quiet()
    assert sorted(await rig.payloads()) == ["a", "c"]
    assert (rig.stats().ready, rig.stats().leased) == (2, 0)
    await rig.crash_and_reopen()
    await rig.check_counters()
    assert sorted(await rig.drain()) == ["a", "c"]


async def test_two_completes_of_the_same_item_in_one_turn_complete_it_once(rig: Rig) -> None:
    """Of two that come together one is told that the item is not leased any more."""
    await rig.open()
    await rig.produce("a", "b")
    given = await rig.reserve(2)
    first = rig.logical_queue.complete(0, given.ids, TIMEOUT_MS)
    second = rig.logical_queue.complete(0, given.ids[:1], TIMEOUT_MS)
    await rig.answer(first)
    with pytest.raises(NotLeased):
        await rig.answer(second)
    assert rig.stats().total == 0


async def test_a_renew_beside_a_complete_of_the_same_lease_keeps_both_effects(rig: Rig) -> None:
    """Parts of one lease may be completed, renewed and given back in the same turn."""
    await rig.open()
    await rig.produce("a", "b", "c")
    given = await rig.reserve(3)
    done = rig.logical_queue.complete(0, given.ids[:1], TIMEOUT_MS)
    renewed = rig.logical_queue.renew(0, given.ids[1:2], TIMEOUT_MS, 5 * LEASE_MS)
    retried = rig.logical_queue.retry(0, [RetryItem(given.ids[2])], TIMEOUT_MS)
    for future in (done, renewed, retried):
        await rig.answer(future)
    assert (rig.stats().ready, rig.stats().leased) == (1, 1)
    await rig.crash_and_reopen()
    assert (rig.stats().ready, rig.stats().leased) == (1, 1)
    await rig.complete(given.ids[1:2])
    assert await rig.drain() == ["c"]


async def test_max_attempts_lowered_later_holds_for_what_is_there(rig: Rig) -> None:
    """An item that already had its hand-outs is not handed out once more; one that is leased may finish."""
    await rig.open()
    await rig.produce("a", "b", "c")
    await rig.retry((await rig.reserve()).ids)
    leased = await rig.reserve()
    assert leased.payloads == ["b"]
    rig.update(max_attempts=1)
    assert (await rig.reserve(10)).payloads == ["c"]
    assert rig.stats().ready == 0
    await rig.complete(leased.ids)
    await rig.check_counters()


@pytest.mark.parametrize("in_ms", [-1000, 0])
async def test_a_retry_at_a_past_time_comes_back_at_once_at_the_tail(rig: Rig, in_ms: int) -> None:
    """An old failure does not block the head."""
    await rig.open(retry_policy=RetryPolicy(base_ms=10_000))
    await rig.produce("a", "b")
    given = await rig.reserve()
    await rig.retry(given.ids, retry_at_ms=rig.clock.now_ms() + in_ms)
    assert await rig.drain() == ["b", "a"]


async def test_a_retry_at_a_future_time_waits_for_it(rig: Rig) -> None:
    """The item is scheduled, keeps its history, and is ready at its time, also after a restart."""
    await rig.open()
    await rig.produce("a")
    created_ms = rig.clock.now_ms()
    await rig.retry((await rig.reserve()).ids, retry_at_ms=rig.clock.now_ms() + 5000)
    assert (rig.stats().total, rig.stats().scheduled) == (0, 1)
    await rig.crash_and_reopen()
    await rig.pass_ms(4000)
    assert rig.stats().scheduled == 1
    await rig.pass_ms(1000)
    assert (rig.stats().ready, rig.stats().scheduled) == (1, 0)
    (item,) = (await rig.reserve()).items
    assert (item.attempts, item.created_at) == (1, created_ms)


async def test_the_backoff_policy_delays_a_retry_without_time(rig: Rig) -> None:
    """Each further attempt waits longer, by the factor, up to the most."""
    await rig.open(retry_policy=RetryPolicy(base_ms=1000, factor=3.0, max_ms=5000, jitter=0.0))
    await rig.produce("a")
    for delay_ms in (1000, 3000, 5000, 5000):
        given = await rig.reserve()
        await rig.retry(given.ids)
        (view,) = await rig.list_scheduled()
        assert view.enqueue_at_ms == rig.clock.now_ms() + delay_ms
        await rig.pass_ms(delay_ms)


async def test_an_expired_lease_knows_no_backoff(rig: Rig) -> None:
    """A consumer that went silent does not make the item wait: it is ready at the deadline."""
    await rig.open(retry_policy=RetryPolicy(base_ms=60_000))
    await rig.produce("a")
    await rig.reserve()
    await rig.pass_ms(LEASE_MS)
    assert rig.stats().ready == 1


async def test_a_lease_may_be_as_long_as_the_reserve_asks(rig: Rig) -> None:
    """The lease timeout of the call goes over the queue's."""
    await rig.open()
    await rig.produce("a")
    given = await rig.reserve(lease_timeout_ms=1000)
    assert given.deadline_ms == rig.clock.now_ms() + 1000
    waiting = rig.ask()
    await rig.pass_ms(1000)
    assert handout(await rig.answer(waiting)).payloads == ["a"]


async def test_the_time_to_live_of_a_scheduled_item_counts_from_when_it_is_due(rig: Rig) -> None:
    """An item that is scheduled beyond the queue's expire_timeout can be handed out, and expires that much later."""
    await rig.open(expire_timeout_ms=1000)
    await rig.schedule("a", in_ms=5000)
    await rig.pass_ms(5000)
    await rig.pass_ms(10)
    assert (rig.stats().total, rig.stats().scheduled) == (1, 0)
    await rig.pass_ms(1000)
    assert await rig.payloads() == []


async def test_attempts_survive_a_restart(rig: Rig) -> None:
    """The number of hand-outs is stored with the item."""
    await rig.open()
    await rig.produce("a")
    await rig.retry((await rig.reserve()).ids)
    await rig.crash_and_reopen()
    assert (await rig.reserve()).items[0].attempts == 1
