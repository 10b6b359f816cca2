"""A graceful stop: waiting reserves are answered, what runs is finished, nobody is left without an answer."""

from __future__ import annotations

import asyncio

import pytest

from querator.errors import RetryRequest, Stopping
from querator.relay import Relay
from storage.faulty import Outcome
from tests.core.rig import PATIENCE_S, TIMEOUT_MS, Rig


async def nowhere(target: str, source_uid: int, entries: object) -> None:
    raise AssertionError("nothing is to be delivered")


async def close(rig: Rig) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await rig.logical_queue.close()


async def test_waiting_reserves_are_answered(rig: Rig) -> None:
    """A long poll is told at once that the instance stops."""
    await rig.open()
    waiting = rig.ask()
    await rig.quiet()
    await close(rig)
    with pytest.raises(Stopping):
        await rig.answer(waiting)


@pytest.mark.parametrize("call", ["produce", "complete"])
async def test_a_request_that_just_came_does_not_hold_up_the_close(rig: Rig, call: str) -> None:
    """Closing with a relay at work and a request that no turn has taken yet ends, and the request is answered."""
    await rig.open()
    rig.logical_queue.spawn(Relay(rig.logical_queue, nowhere).run())
    await rig.produce("a")
    given = await rig.reserve()
    future: asyncio.Future[object]
    future = rig.send("b") if call == "produce" else rig.logical_queue.complete(0, given.ids, TIMEOUT_MS)  # type: ignore[assignment]
    await close(rig)
    assert future.done()


async def test_what_is_being_committed_is_finished_and_answered(rig: Rig) -> None:
    """A produce whose commit is under way when the close begins is durable and answered so."""
    await rig.open()
    gate = rig.gate()
    produced = rig.send("a")
    await rig.until(lambda: rig.member().turn is not None)
    closing = asyncio.ensure_future(rig.logical_queue.close())
    await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await asyncio.wait_for(closing, PATIENCE_S)
    assert (await produced).partition == 0
    await rig.take_over()
    assert await rig.payloads() == ["a"]


async def test_items_granted_to_a_caller_that_has_gone_are_taken_back_before_the_close_ends(rig: Rig) -> None:
    """The next owner can hand them out at once: it does not find them leased to nobody."""
    await rig.open()
    await rig.produce("a")
    gate = rig.gate()
    gone = rig.ask()
    await rig.until(lambda: rig.member().turn is not None)
    gone.cancel()
    closing = asyncio.ensure_future(rig.logical_queue.close())
    await asyncio.sleep(0)
    gate.set()
    await asyncio.wait_for(closing, PATIENCE_S)
    await rig.take_over()
    assert (await rig.reserve()).payloads == ["a"]


async def test_a_reserve_whose_commit_fails_during_the_close_is_answered(rig: Rig) -> None:
    """A reserve that goes back to waiting while the queue closes is told, instead of being forgotten."""
    await rig.open()
    await rig.produce("a")
    gate = rig.gate(outcome=Outcome.REFUSED)
    waiting = rig.ask()
    await rig.until(lambda: rig.member().turn is not None)
    closing = asyncio.ensure_future(rig.logical_queue.close())
    await asyncio.sleep(0)
    gate.set()
    await asyncio.wait_for(closing, PATIENCE_S)
    assert waiting.done()
    with pytest.raises(RetryRequest):
        await waiting


async def test_a_produce_that_no_partition_took_is_answered(rig: Rig) -> None:
    """A produce that waits for a failing partition is told that the instance stops."""
    await rig.open()
    rig.backend.break_()
    produced = rig.send("a")
    await rig.until(lambda: rig.stats().state == "failing")
    await close(rig)
    with pytest.raises(RetryRequest):
        await rig.answer(produced)


async def test_opening_and_closing_twice_is_allowed(rig: Rig) -> None:
    """Both are idempotent, and a closed logical queue takes nothing."""
    await rig.open()
    await rig.logical_queue.open()
    await rig.produce("a")
    await close(rig)
    await close(rig)
    with pytest.raises(RetryRequest):
        rig.send("b")
    with pytest.raises(RetryRequest):
        rig.ask()
