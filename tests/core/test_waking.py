"""Whatever makes an item ready wakes a waiting reserve; a caller that has gone holds nothing."""

from __future__ import annotations

import asyncio

import pytest

from querator.errors import Overloaded, RetryRequest, TimedOut
from querator.limits import Limits
from tests.core.rig import LEASE_MS, Rig, handout, items_of


async def test_a_produce_wakes_a_waiting_reserve(rig: Rig) -> None:
    """An item produced while a consumer waits is stored already leased, and handed over."""
    await rig.open()
    waiting = rig.ask()
    await rig.quiet()
    await rig.produce("a")
    given = handout(await rig.answer(waiting))
    assert (given.payloads, rig.stats().ready, rig.stats().leased) == (["a"], 0, 1)
    assert rig.member().state.commit_number == 1


async def test_a_due_scheduled_item_wakes_a_waiting_reserve(rig: Rig) -> None:
    """A scheduled item is handed out when its time has come, and not before."""
    await rig.open()
    await rig.schedule("a", in_ms=5000)
    waiting = rig.ask()
    await rig.pass_ms(4000)
    assert not waiting.done()
    await rig.pass_ms(1000)
    assert handout(await rig.answer(waiting)).payloads == ["a"]
    assert (rig.stats().scheduled, rig.stats().leased) == (0, 1)


async def test_a_retry_wakes_a_waiting_reserve(rig: Rig) -> None:
    """An item that is given back goes to whoever waits."""
    await rig.open()
    await rig.produce("a")
    given = await rig.reserve()
    waiting = rig.ask()
    await rig.quiet()
    await rig.retry(given.ids)
    again = handout(await rig.answer(waiting))
    assert (again.payloads, again.items[0].attempts) == (["a"], 1)


async def test_an_expired_lease_wakes_a_waiting_reserve(rig: Rig) -> None:
    """Items of a consumer that went silent go to whoever waits, at the lease's deadline and not before."""
    await rig.open()
    await rig.produce("a")
    await rig.reserve()
    waiting = rig.ask(timeout_ms=10 * LEASE_MS)
    await rig.pass_ms(LEASE_MS - 10)
    assert not waiting.done()
    await rig.pass_ms(10)
    assert handout(await rig.answer(waiting)).payloads == ["a"]


async def test_an_import_wakes_a_waiting_reserve(rig: Rig) -> None:
    """Imported items go to whoever waits."""
    await rig.open()
    waiting = rig.ask()
    await rig.quiet()
    await rig.import_items(items_of("a"))
    assert handout(await rig.answer(waiting)).payloads == ["a"]


async def test_a_reserve_times_out_with_454(rig: Rig) -> None:
    """A long poll ends at its own deadline."""
    await rig.open()
    waiting = rig.ask(timeout_ms=1000)
    other = rig.ask(timeout_ms=5000)
    await rig.pass_ms(1000)
    with pytest.raises(TimedOut) as caught:
        await rig.answer(waiting)
    assert caught.value.code == 454
    assert not other.done()
    assert rig.logical_queue.stats().reserve_waiting == 1
    other.cancel()


async def test_a_cancelled_long_poll_frees_its_place_at_once(rig: Rig) -> None:
    """A caller that has gone takes no place among those that wait, and no item."""
    await rig.open(limits=Limits(waiting_reserves=1))
    gone = rig.ask()
    with pytest.raises(Overloaded):
        rig.ask()
    gone.cancel()
    await asyncio.sleep(0)
    waiting = rig.ask()
    await rig.produce("a")
    given = handout(await rig.answer(waiting))
    assert (given.payloads, given.items[0].attempts) == (["a"], 0)


async def test_a_caller_that_is_known_to_be_gone_is_given_nothing(rig: Rig) -> None:
    """A reserve cancelled just before a turn is not granted anything: its item is not spent, and goes to the next."""
    await rig.open(max_attempts=1)
    gone = rig.ask()
    waiting = rig.ask()
    await rig.quiet()
    produced = rig.send("a")
    gone.cancel()
    await rig.answer(produced)
    given = handout(await rig.answer(waiting))
    assert (given.payloads, given.items[0].attempts) == (["a"], 0)


async def test_items_granted_to_a_caller_that_has_gone_come_back_soon(rig: Rig) -> None:
    """If the caller goes while its lease is being written, the items do not wait for the lease to run out."""
    await rig.open()
    await rig.produce("a")
    gate = rig.gate()
    gone = rig.ask()
    await rig.until(lambda: rig.member().turn is not None)
    gone.cancel()
    waiting = rig.ask()
    gate.set()
    assert handout(await rig.answer(waiting)).payloads == ["a"]


async def test_items_granted_to_a_caller_that_has_gone_keep_their_place(rig: Rig) -> None:
    """Whoever reserves next gets them, and not what lies behind them."""
    await rig.open()
    await rig.produce("a")
    await rig.produce("b")
    gate = rig.gate()
    gone = rig.ask()
    await rig.until(lambda: rig.member().turn is not None)
    gone.cancel()
    waiting = rig.ask()
    gate.set()
    assert handout(await rig.answer(waiting)).payloads == ["a"]


async def test_waiting_reserves_share_evenly(rig: Rig) -> None:
    """Items that come while several wait are spread over all of them."""
    await rig.open()
    waiting = [rig.ask(10) for _ in range(3)]
    await rig.quiet()
    await rig.produce(*"abcdefg")
    given = [handout(await rig.answer(each)).payloads for each in waiting]
    assert sorted(len(payloads) for payloads in given) == [2, 2, 3]
    assert sorted(payload for payloads in given for payload in payloads) == list("abcdefg")


async def test_one_partition_and_one_consumer_is_first_in_first_out(rig: Rig) -> None:
    """The order of produces is the order of hand-outs, whether they came one by one or together."""
    await rig.open()
    sent = [rig.send(f"{number:03}a", f"{number:03}b") for number in range(20)]
    for future in sent:
        await rig.answer(future)
    for number in range(20, 40):
        await rig.produce(f"{number:03}a", f"{number:03}b")
    assert await rig.drain(at_once=7) == [f"{number:03}{part}" for number in range(40) for part in "ab"]


async def test_full_inboxes_answer_overloaded(rig: Rig) -> None:
    """Nothing that waits grows without bound: the next request is told to come again."""
    await rig.open(limits=Limits(waiting_requests=2))
    await rig.produce("a")
    given = await rig.reserve()
    gate = rig.gate()
    sent = [rig.send("b")]
    await rig.until(lambda: rig.member().turn is not None)
    sent += [rig.send("c"), rig.send("d")]
    with pytest.raises(Overloaded):
        rig.send("e")
    completes = [rig.logical_queue.complete(0, given.ids, 1000) for _ in range(2)]
    with pytest.raises(Overloaded):
        rig.logical_queue.complete(0, given.ids, 1000)
    gate.set()
    for future in sent:
        await rig.answer(future)
    await rig.answer(completes[0])
    await rig.answer(asyncio.wait(completes))
    completes[1].exception()
    assert await rig.drain() == ["b", "c", "d"]


async def test_a_paused_queue_refuses_produces_and_holds_reserves_until_it_is_resumed(rig: Rig) -> None:
    """Pausing one way leaves the other open, and resuming wakes who waits."""
    await rig.open()
    rig.replace(reserve_paused=True)
    waiting = rig.ask()
    await rig.produce("a")
    await rig.quiet()
    assert not waiting.done()
    rig.replace(reserve_paused=False, produce_paused=True)
    assert handout(await rig.answer(waiting)).payloads == ["a"]
    with pytest.raises(RetryRequest, match="paused"):
        rig.send("b")
    rig.replace(produce_paused=False)
    await rig.produce("b")
