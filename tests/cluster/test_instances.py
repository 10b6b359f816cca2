"""Three instances that own one queue together: any of them takes any call, and any of them may go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from querator.errors import NoSuchQueue, TimedOut
from querator.requests import RetryItem
from tests.cluster.trio import Trio, payloads, trio_in, until

PARTITIONS = 6


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    async with trio_in(tmp_path) as trio:
        await trio.sites[0].create("mail", requested_partitions=PARTITIONS, logical_queues=3)
        await trio.until_spread("mail", PARTITIONS)
        yield trio


async def test_every_instance_owns_a_part(trio: Trio) -> None:
    """Three logical queues on three instances have two partitions each."""
    assert [len(site.owns("mail")) for site in trio.sites] == [2, 2, 2]


async def test_one_consumer_drains_what_is_produced_everywhere(trio: Trio) -> None:
    """Whoever reserves at one instance gets the items of all, and completes them there."""
    a, b, c = trio.sites
    for site in trio.sites:
        await site.produce("mail", *(f"{site.name}{number}".encode() for number in range(10)))
    seen: set[bytes] = set()
    while len(seen) < 30:
        given = await a.reserve("mail", 4)
        seen.update(payloads(given))
        await a.complete("mail", given)
    assert seen == {f"{name}{number}".encode() for name in "abc" for number in range(10)}
    assert (await b.participant.router.queue_stats("mail")).missing == []
    stats = await c.participant.router.queue_stats("mail")
    assert sum(part.total for each in stats.logical_queues for part in each.partitions) == 0


async def test_a_waiting_reserve_is_moved_to_where_items_appear(trio: Trio) -> None:
    """It waits at one instance, and is answered with what is produced at another, without asking again."""
    a, b, _ = trio.sites
    for number in range(5):
        waiting = a.reserve("mail")
        await asyncio.sleep(0)
        await b.produce("mail", b"%d" % number)
        given = await waiting
        assert payloads(given) == [b"%d" % number]
        await a.complete("mail", given)


async def test_many_that_wait_everywhere_share_what_comes_anywhere(trio: Trio) -> None:
    """No item waits while somebody waits for one, and no item is handed out twice."""
    waiting = [site.reserve("mail") for site in trio.sites for _ in range(8)]
    for number in range(24):
        await trio.sites[number % 3].produce("mail", b"%d" % number)
    given = await asyncio.gather(*waiting)
    assert sorted(payloads(each)[0] for each in given) == sorted(b"%d" % number for number in range(24))


async def test_a_reserve_that_finds_nothing_anywhere_times_out(trio: Trio) -> None:
    """It is told so at its time, as if there were one instance."""
    with pytest.raises(TimedOut, match="no items were ready"):
        await trio.sites[1].reserve("mail", timeout_ms=50)


async def test_a_caller_that_goes_leaves_its_items_to_others(trio: Trio) -> None:
    """A reserve that is cancelled wherever it is leases nothing."""
    a, b, _ = trio.sites
    for round_ in range(20):
        waiting = a.reserve("mail")
        producing = asyncio.ensure_future(b.produce("mail", b"x"))
        for _ in range(round_):
            await asyncio.sleep(0)
        waiting.cancel()
        await producing
        given = await b.reserve("mail") if waiting.cancelled() else waiting.result()
        await b.complete("mail", given)


async def test_a_queue_is_made_changed_and_deleted_from_anywhere(trio: Trio) -> None:
    """What one instance does to a queue, the others follow."""
    a, b, c = trio.sites
    await b.create("other", requested_partitions=3, logical_queues=3)
    await c.produce("other", b"x")
    await a.participant.router.management.pause_queue("other", produce=True, reserve=None)
    await until(lambda: c.participant.router.queue("other").produce_paused, "it is paused everywhere")
    await c.participant.router.management.delete_queue("other", force=True)
    await until(lambda: all(s.participant.catalog.find("other") is None for s in trio.sites), "it is gone everywhere")
    with pytest.raises(NoSuchQueue):
        await a.produce("other", b"x")
    await until(lambda: all(not s.owns("other") for s in trio.sites), "nobody owns it")


async def test_a_queue_with_items_elsewhere_is_not_deleted(trio: Trio) -> None:
    """Whether a queue is empty is asked of all owners, and after a refusal it works on."""
    a, b, _ = trio.sites
    await b.produce("mail", b"x")
    with pytest.raises(Exception, match="holds 1 items"):
        await a.participant.router.management.delete_queue("mail", force=False)
    await b.produce("mail", b"y")
    assert {payloads(await a.reserve("mail"))[0], payloads(await a.reserve("mail"))[0]} == {b"x", b"y"}


@pytest.mark.parametrize("leader", [True, False], ids=["leader", "follower"])
async def test_another_instance_takes_over_what_a_dead_one_owned(trio: Trio, leader: bool) -> None:
    """Nothing is lost: what was leased can be completed, what was ready is handed out."""
    (victim,) = [site for site in trio.sites[:2] if site.participant.election.is_leader is leader][:1] or [
        trio.sites[2]
    ]
    witness = next(site for site in trio.sites if site is not victim)
    for number in range(30):
        await trio.sites[number % 3].produce("mail", b"%d" % number)
    held = [await witness.reserve("mail", 3) for _ in range(4)]
    await trio.remove(victim, kill=True)
    await trio.until_spread("mail", PARTITIONS)
    seen = [payload for given in held for payload in payloads(given)]
    for given in held:
        await witness.complete("mail", given)
    while len(seen) < 30:
        given = await witness.reserve("mail", 10)
        await witness.complete("mail", given)
        seen += payloads(given)
    assert sorted(seen) == sorted(b"%d" % number for number in range(30))


async def test_an_instance_that_stops_hands_over_first(trio: Trio) -> None:
    """Who is told to stop owns nothing at the end, and its clients' items are with the others."""
    a, b, c = trio.sites
    for site in trio.sites:
        await site.produce("mail", *(f"{site.name}{number}".encode() for number in range(4)))
    waiting = [b.reserve("mail", 1) for _ in range(2)]
    held = await asyncio.gather(*waiting)
    await trio.remove(c, kill=False)
    await trio.until_spread("mail", PARTITIONS)
    seen = {payload for given in held for payload in payloads(given)}
    for given in held:
        await a.complete("mail", given)
    while len(seen) < 12:
        given = await a.reserve("mail", 10)
        seen.update(payloads(given))
        await b.complete("mail", given)


async def test_a_reserve_that_waits_outlives_a_move(trio: Trio) -> None:
    """Partitions that change their owner under it are no reason to answer a reserve with an error."""
    a, _, c = trio.sites
    waiting = [a.reserve("mail") for _ in range(4)]
    await trio.remove(c, kill=False)
    await trio.until_spread("mail", PARTITIONS)
    for number in range(4):
        await a.produce("mail", b"%d" % number)
    assert sorted(payloads(given)[0] for given in await asyncio.gather(*waiting)) == [b"0", b"1", b"2", b"3"]


async def test_totals_say_who_is_missing(trio: Trio) -> None:
    """An owner that cannot be reached makes the answer partial, not impossible."""
    a, b, _ = trio.sites
    trio.wires.plugged.pop("b:1")
    trio.wires.cut("b:1")
    stats = await a.participant.router.queue_stats("mail")
    assert stats.missing == ["b"]
    assert len(stats.logical_queues) == 2
    trio.wires.plugged["b:1"] = b.participant.peers


async def test_dead_items_reach_a_queue_that_others_own(trio: Trio) -> None:
    """The relay finds the owner of the dead queue's partition, wherever that is."""
    a, b, c = trio.sites
    await a.create("dead", requested_partitions=3, logical_queues=3)
    await b.create("mortal", requested_partitions=3, logical_queues=3, dead_queue="dead", max_attempts=1)
    for number in range(9):
        await trio.sites[number % 3].produce("mortal", b"%d" % number)
    for _ in range(9):
        given = await c.reserve("mortal")
        (run,) = given.runs
        await c.participant.router.retry("mortal", given.partition, [RetryItem(run.ids()[0])], 10_000)
    buried: set[bytes] = set()
    while len(buried) < 9:
        given = await a.reserve("dead", 9)
        buried.update(payloads(given))
        await a.complete("dead", given)
    assert buried == {b"%d" % number for number in range(9)}


async def test_one_logical_queue_is_reached_from_everywhere(trio: Trio) -> None:
    """A queue that one instance owns alone is used through the others as well."""
    await trio.sites[0].create("single", requested_partitions=2, logical_queues=1)
    for number, site in enumerate(trio.sites):
        await site.produce("single", b"%d" % number)
    given = [await site.reserve("single") for site in trio.sites]
    assert sorted(payloads(each)[0] for each in given) == [b"0", b"1", b"2"]
    for site, each in zip(reversed(trio.sites), given, strict=True):
        await site.complete("single", each)


async def test_a_queue_gets_more_logical_queues_when_many_wait(trio: Trio) -> None:
    """With `auto` it begins with one, and grows to the instances that there are when consumers come."""
    a, _, c = trio.sites
    await a.create("busy", requested_partitions=6)
    assert sum(bool(site.owns("busy")) for site in trio.sites) == 1
    waiting = [site.reserve("busy") for site in (a, c) for _ in range(6)]
    await trio.until_spread("busy", 6)
    for number in range(12):
        await trio.sites[number % 3].produce("busy", b"%d" % number)
    given = await asyncio.gather(*waiting)
    assert sorted(payloads(each)[0] for each in given) == sorted(b"%d" % number for number in range(12))
