"""Elections, on every coordinator: one leader at a time, and the next one when it stops, is killed or is deposed."""

from __future__ import annotations

import asyncio

from cluster.coordinator import Coordinator
from cluster.election import Election
from cluster.lease import host_clock
from tests.conformance.coordinators import PATIENCE_S, Rig, coordinator, holder, other, rig, shared_etcd, soon

__all__ = ["coordinator", "other", "rig", "shared_etcd"]

TTL_MS = 30_000


def candidate(coordinator: Coordinator, name: str) -> Election:
    election = Election(coordinator, key="election", value=name.encode(), ttl_ms=TTL_MS, clock=host_clock())
    election.start()
    return election


async def first_elected(elections: list[Election]) -> Election:
    waiting = [asyncio.create_task(each.elected.wait()) for each in elections]
    await soon(asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    (leader,) = [each for each in elections if each.is_leader]
    return leader


async def test_one_leads_at_a_time(rig: Rig) -> None:
    """Of many candidates exactly one leads; when it resigns exactly one of the others does, down to the last."""
    coordinators = [await rig.open() for _ in range(3)]
    elections = [candidate(each, f"c{index}") for index, each in enumerate(coordinators * 2)]
    while elections:
        leader = await first_elected(elections)
        assert leader.leader == leader._value
        elections.remove(leader)
        assert not any(each.elected.is_set() for each in elections)
        await leader.stop()
        assert not leader.is_leader
        assert leader.deposed.is_set()
    assert await coordinators[0].get("election") is None


async def test_the_next_one_leads_after_the_leader_was_killed(rig: Rig, coordinator: Coordinator) -> None:
    """Others know who leads; when its process is killed, one of them leads after the lease."""
    async with holder(rig, "election") as process:
        election = candidate(coordinator, "next")
        async with asyncio.timeout(PATIENCE_S):
            while election.leader is None:
                await asyncio.sleep(0.01)
        assert (election.leader, election.is_leader) == (b"holder", False)
        process.kill()
        await soon(election.elected.wait())
    assert (election.leader, election.is_leader) == (b"next", True)
    await election.stop()


async def test_a_leader_whose_key_was_taken_away_notices(coordinator: Coordinator, other: Coordinator) -> None:
    """It leads no longer, and what it writes with its proof is refused; then it stands again."""
    election = candidate(coordinator, "a")
    await soon(election.elected.wait())
    proof = election.proof()
    assert await coordinator.transact(expected=proof, puts={"b": b"1"})
    assert await other.transact(expected=proof, puts={"election": b"usurper"})
    await soon(election.deposed.wait())
    assert not election.is_leader
    assert election.leader == b"usurper"
    for stale in (proof, election.proof()):
        assert await coordinator.transact(expected=stale, puts={"b": b"2"}) is None
    await other.transact(expected={}, puts={}, deletes=["election"])
    await soon(election.elected.wait())
    assert election.proof() != proof
    await election.stop()


async def test_a_leader_that_lost_its_lease_stands_again(coordinator: Coordinator, other: Coordinator) -> None:
    """With the lease goes the lead; both are sought again."""
    election = candidate(coordinator, "a")
    await soon(election.elected.wait())
    assert election._lease is not None
    first = election.proof()
    await election._lease.abandon()
    assert not election.is_leader
    await soon(election.deposed.wait())
    await soon(election.elected.wait())
    assert election.proof() != first
    entry = await other.get("election")
    assert entry is not None
    assert election.proof() == {"election": entry.revision}
    await election.stop()
