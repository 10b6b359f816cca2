"""Ways of a real cluster that are cut under load: between two instances, to etcd, to the database."""

from __future__ import annotations

import pytest

from tests.realcluster.cluster import NAMES, SPREAD, Cluster, crew_on, until
from tests.realcluster.verdict import SEED, Tell, report_of
from tests.realcluster.wires import Flow

# Some give up before the network is whole again, and then do not know what became of their items.
PRODUCE_TIMEOUTS_MS = (200, 10_000)


@pytest.mark.slow
async def test_two_instances_that_do_not_reach_each_other_lose_nothing(cluster: Cluster, tell: Tell) -> None:
    """Each serves what it reaches and says whose totals are missing; when the network is whole, all is as before."""
    async with crew_on(cluster, SEED, [SPREAD], PRODUCE_TIMEOUTS_MS) as crew:

        async def is_partial() -> bool:
            stats = await cluster["a"].call("queue.stats", {"queue_name": SPREAD.queue})
            names = await cluster.names(cluster["a"])
            missing = {names.get(each) for each in stats.get("missing", [])}
            return missing == {"b"}

        async with crew.at_work(producers=3, consumers=4):
            for flow in (Flow.SILENT, Flow.BROKEN):
                await crew.rounds(50)
                async with cluster.parted("a", "b", flow):
                    await until(is_partial, "'a' does not hear of 'b'")
                    await crew.rounds(50)
                await cluster.until_spread()
            await crew.rounds(50)
        report = await report_of(crew)
    tell(f"two instances parted: {report}")


@pytest.mark.slow
async def test_an_instance_that_does_not_reach_etcd_loses_nothing(cluster: Cluster, tell: Tell) -> None:
    """It serves on until others own its partitions, is refused from then on, and takes its place again."""
    async with crew_on(cluster, SEED, [SPREAD], PRODUCE_TIMEOUTS_MS) as crew:
        async with crew.at_work(producers=3, consumers=4):
            await crew.rounds(50)
            async with cluster.without_etcd("a", Flow.SILENT):
                await crew.rounds(50)
                await cluster.until_spread(over=[name for name in NAMES if name != "a"])
                await crew.rounds(50)
            await cluster.until_spread()
            await crew.rounds(50)
        report = await report_of(crew)
    losses = len(cluster["a"].said("partition was taken over"))
    tell(f"one instance without etcd: {losses} partitions were taken from it; {report}")


@pytest.mark.slow
async def test_an_instance_that_does_not_reach_the_database_loses_nothing(cluster: Cluster, tell: Tell) -> None:
    """The others serve what they own, and what it owns is there again with the network."""
    async with crew_on(cluster, SEED, [SPREAD], PRODUCE_TIMEOUTS_MS) as crew:

        async def is_failing() -> bool:
            stats = await cluster["b"].call("queue.stats", {"queue_name": SPREAD.queue})
            states = [part["state"] for each in stats.get("logicalQueues", []) for part in each["partitions"]]
            return "failing" in states

        async with crew.at_work(producers=3, consumers=4):
            for flow in (Flow.SILENT, Flow.BROKEN):
                await crew.rounds(50)
                async with cluster.without_database("a", flow):
                    await until(is_failing, "partitions of 'a' fail")
                    await crew.rounds(50)
                await cluster.until_spread()
            await crew.rounds(50)
        report = await report_of(crew)
    tell(f"one instance without the database: {report}")
