"""Instances that are paused for longer than they are waited for, and wake up when others own what they owned."""

from __future__ import annotations

import asyncio

import pytest

from tests.history.events import Event, Returned
from tests.realcluster.cluster import NAMES, SPREAD, Cluster, Probe, crew_on, until
from tests.realcluster.verdict import SEED, Tell, report_of
from tests.realcluster.wires import Flow

REFUSED = "454 partition is failing"


def ends(events: list[Event], client: str) -> list[Returned]:
    return [event for event in events if isinstance(event, Returned) and event.client == client]


@pytest.mark.slow
async def test_an_owner_that_wakes_up_after_its_partitions_moved_is_fenced(cluster: Cluster, tell: Tell) -> None:
    """It has not heard of the move and tries to write what it is asked: the storage refuses it, and no caller is told 200."""
    async with crew_on(cluster, SEED, [SPREAD]) as crew:
        probe = Probe(crew, cluster)
        await probe.hold(SPREAD)
        victim = await cluster.leader(cluster["a"])
        others = [name for name in NAMES if name != victim.name]
        owned = [number for number, name in (await cluster.owners(SPREAD.queue, victim)).items() if name == victim.name]
        completer, producer = crew.client("completer"), crew.client("producer")
        async with cluster.without_etcd(victim.name, Flow.SILENT):
            victim.pause()
            await cluster.until_spread(over=others)
            completer.place = cluster[others[0]]
            assert await completer.complete(probe.take(owned[0])) == "ok"
            completer.place = producer.place = victim
            held = [probe.take(number) for number in owned[1:]]
            stalled = [asyncio.create_task(completer.complete(each)) for each in held]
            stalled.append(asyncio.create_task(producer.produce(SPREAD.queue, 1, timeout_ms=1500)))
            victim.resume()
            outcomes = await asyncio.gather(*stalled)
            assert "ok" not in outcomes

            async def is_told() -> bool:
                return bool(victim.said("partition was taken over"))

            await until(is_told, "the victim says what it lost")
            losses = await victim.metric("querator_partition_losses_total")
            assert losses > 0
        await cluster.until_spread()
        refusals = [each.reason for each in ends(crew.events, "completer")[1:]]
        assert all(reason.startswith(REFUSED) for reason in refusals), refusals
        for each in held:
            assert await completer.complete(each) == "ok"
        await probe.let_go()
        report = await report_of(crew)
        tell(f"an owner that woke up was refused {losses:.0f} partitions, callers were told {set(refusals)}; {report}")


@pytest.mark.slow
async def test_nothing_is_lost_or_done_twice_when_instances_are_paused_under_load(cluster: Cluster, tell: Tell) -> None:
    """Leader or not: what it had is with the others before it goes on, and it takes its place again."""
    async with crew_on(cluster, SEED, [SPREAD]) as crew:
        async with crew.at_work(producers=3, consumers=4):
            leader = await cluster.leader(cluster["a"])
            for victim in (leader, next(each for each in cluster.instances if each is not leader)):
                await crew.rounds(50)
                victim.pause()
                await cluster.until_spread(over=[name for name in NAMES if name != victim.name])
                victim.resume()
                await cluster.until_spread()
        report = await report_of(crew)
    tell(f"paused leader and another: {report}")
