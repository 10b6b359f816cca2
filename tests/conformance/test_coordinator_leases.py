"""What every coordinator promises about leases: what was written under one is there while its holder lives."""

from __future__ import annotations

import asyncio

import pytest

from cluster.coordinator import Coordinator, LeaseLost
from cluster.lease import host_clock
from tests.conformance.coordinators import (
    SHORT_MS,
    Rig,
    coordinator,
    holder,
    other,
    put,
    rig,
    shared_etcd,
    soon,
    watching,
)

__all__ = ["coordinator", "other", "rig", "shared_etcd"]


async def test_a_lease_is_kept_for_longer_than_its_time(coordinator: Coordinator, other: Coordinator) -> None:
    """The coordinator renews it by itself, and what was written under it stays."""
    lease = await coordinator.grant(2 * SHORT_MS)
    await coordinator.transact(expected={}, puts={"a": b"1"}, lease=lease)
    clock = host_clock()
    enough_at_ms = clock.now_ms() + lease.ttl_ms + lease.ttl_ms // 2
    while clock.now_ms() < enough_at_ms:
        assert await other.get("a") is not None
        await asyncio.sleep(0.05)
    assert not lease.lost.is_set()
    assert lease.remaining_ms() > 0


async def test_what_was_written_under_a_revoked_lease_is_gone(coordinator: Coordinator, other: Coordinator) -> None:
    """All of it goes at once, and nothing else does; who watches sees it."""
    lease = await coordinator.grant(60_000)
    await coordinator.transact(expected={}, puts={"a": b"1", "b": b"1"}, lease=lease)
    await put(coordinator, c=b"1")
    async with watching(other) as watched:
        await lease.revoke()
        assert lease.lost.is_set()
        assert [entry.key for entry in await other.list("")] == ["c"]
        await watched.until(lambda state: state.keys() == {"c"})
        assert len({change.revision for change in watched.changes}) == 1


async def test_a_put_without_a_lease_outlives_it(coordinator: Coordinator) -> None:
    """The last put decides to which lease a key belongs."""
    first, second = await coordinator.grant(60_000), await coordinator.grant(60_000)
    await coordinator.transact(expected={}, puts={"a": b"1", "b": b"1"}, lease=first)
    await put(coordinator, a=b"2")
    await coordinator.transact(expected={}, puts={"b": b"2"}, lease=second)
    await first.revoke()
    assert [entry.key for entry in await coordinator.list("")] == ["a", "b"]
    await second.revoke()
    assert [entry.key for entry in await coordinator.list("")] == ["a"]


async def test_nothing_is_written_under_a_lease_that_has_ended(coordinator: Coordinator, other: Coordinator) -> None:
    """The writer is told, whether it knew of the end or not; the whole transaction is refused."""
    lease = await coordinator.grant(60_000)
    twin = await other.grant(60_000)
    twin.id, lease_id = lease.id, twin.id  # one who does not know
    await lease.revoke()
    for writer, held in ((coordinator, lease), (other, twin)):
        with pytest.raises(LeaseLost):
            await writer.transact(expected={}, puts={"a": b"1"}, lease=held)
    assert await other.list("") == []
    twin.id = lease_id


async def test_a_lease_that_nobody_keeps_ends(rig: Rig, other: Coordinator) -> None:
    """A coordinator that is closed lets go: its leases are lost here at once, and elsewhere when their time is over."""
    closing = await rig.open()
    lease = await closing.grant(SHORT_MS)
    await closing.transact(expected={}, puts={"a": b"1"}, lease=lease)
    async with watching(other) as watched:
        await closing.close()
        assert lease.lost.is_set()
        assert lease.remaining_ms() == 0
        await watched.until(lambda state: not state)
    assert await other.transact(expected={"a": 0}, puts={"a": b"2"})


async def test_what_a_killed_process_held_is_gone_after_its_lease(rig: Rig, coordinator: Coordinator) -> None:
    """Nobody has to clean up behind a process that was killed."""
    async with holder(rig, "a") as process, watching(coordinator) as watched:
        assert watched.values() == {"a": b"held"}
        process.kill()
        await watched.until(lambda state: not state)


async def test_leases_do_not_depend_on_each_other(coordinator: Coordinator) -> None:
    """Ending one leaves the others."""
    leases = [await coordinator.grant(60_000) for _ in range(5)]
    for number, lease in enumerate(leases):
        await coordinator.transact(expected={}, puts={f"k{number}": b""}, lease=lease)
    await soon(leases[2].revoke())
    assert [entry.key for entry in await coordinator.list("")] == ["k0", "k1", "k3", "k4"]
    assert [lease.lost.is_set() for lease in leases] == [False, False, True, False, False]
