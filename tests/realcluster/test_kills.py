"""`kill -9` of instances of a real cluster under load: the others take over, and nothing is lost or done twice.

`QUERATOR_CLUSTER_KILLS` says how often, `QUERATOR_SEED` names another course of events. With `QUERATOR_CLUSTER_ORDER` the
order of a queue with one partition and one consumer is checked as well. It does not always hold after kills, and the
cause is not known for certain (docs/known-issues.md): a run without it says nothing about order.
"""

from __future__ import annotations

import os
import random
from statistics import median

import pytest

from tests.crash.load import DEAD, LEASE_MS, MORTAL, ORDERED
from tests.history.events import QueueFacts
from tests.realcluster.cluster import LEASE_S, SPREAD, Cluster, Probe, crew_on
from tests.realcluster.verdict import SEED, Tell, report_of

KILLS = int(os.environ.get("QUERATOR_CLUSTER_KILLS", "3"))
PLAIN = QueueFacts(queue="plain", partitions=2, lease_timeout_ms=LEASE_MS)
QUEUES = (PLAIN, DEAD, MORTAL, SPREAD, *((ORDERED,) if "QUERATOR_CLUSTER_ORDER" in os.environ else ()))


@pytest.mark.slow
async def test_nothing_is_lost_or_done_twice_whichever_instance_is_killed(cluster: Cluster, tell: Tell) -> None:
    """After each kill, of the leader and of others, all partitions take changes again, and every item is completed once."""
    rng = random.Random(SEED)
    seconds: list[float] = []
    async with crew_on(cluster, SEED, QUEUES) as crew:
        probe = Probe(crew, cluster)
        await probe.hold(SPREAD)
        async with crew.at_work(producers=4, consumers=6):
            for number in range(KILLS):
                await crew.rounds(rng.randrange(1, 250))
                leader = await cluster.leader(cluster.instances[0])
                others = [each for each in cluster.instances if each is not leader]
                victim = leader if number % 2 == 0 else rng.choice(others)
                witness = rng.choice([each for each in cluster.instances if each is not victim])
                await victim.kill()
                seconds.append(await probe.seconds_until_all_answer(witness))
                await victim.start()
                await cluster.until_spread()
        await probe.let_go()
        report = await report_of(crew)
    tell(f"kills {KILLS}, {report}, {_figures(seconds)}")
    assert report.produced > KILLS


def _figures(seconds: list[float]) -> str:
    middle, late = median(seconds), sorted(seconds)[len(seconds) * 99 // 100]
    told = f"p50 {middle:.2f} s ({middle / LEASE_S:.2f} lease times), p99 {late:.2f} s ({late / LEASE_S:.2f})"
    return f"all partitions again after {told}"
