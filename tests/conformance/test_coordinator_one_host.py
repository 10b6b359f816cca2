"""Coordination in a shared file: time that passes unseen, a host that starts again, a busy file, a killed writer."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from cluster.coordinator import CoordinationError
from cluster.lease import host_clock
from cluster.one_host import OneHostCoordinator
from querator.clock import Clock, ManualClock
from tests.conformance.coordinators import OneHostRig, holder, put, soon, watching

Open = Callable[[Clock], Awaitable[OneHostCoordinator]]


@pytest.fixture
async def open_by(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the test's file with a clock of the test's."""
    opened: list[OneHostCoordinator] = []

    async def open_by(clock: Clock) -> OneHostCoordinator:
        opened.append(await OneHostCoordinator.open(tmp_path / "c.db", clock=clock, request_timeout_ms=2000))
        return opened[-1]

    yield open_by
    for coordinator in opened:
        await coordinator.close()


async def leave_behind(coordinator: OneHostCoordinator, ttl_ms: int, **values: bytes) -> None:
    """What a process leaves that was killed while it held a lease."""
    lease = await coordinator.grant(ttl_ms)
    await coordinator.transact(expected={}, puts=values, lease=lease)
    await lease.abandon()


async def test_whoever_comes_first_ends_what_is_due(open_by: Open) -> None:
    """A lease that ran out while nobody looked is over for the first call, whichever it is, and not before its end."""
    clock = ManualClock()
    coordinator = await open_by(clock)
    for look in (
        lambda: coordinator.get("a"),
        lambda: coordinator.list("a"),
        lambda: coordinator.transact(expected={"a": 1}, puts={}),
    ):
        await leave_behind(coordinator, 1000, a=b"1")
        clock.advance(999)
        assert await coordinator.get("a") is not None
        clock.advance(1)
        assert not await look()
        assert await coordinator.transact(expected={"a": 0}, puts={})
    await leave_behind(coordinator, 1000, a=b"1")
    clock.advance(1000)
    assert await coordinator.transact(expected={"a": 0}, puts={"a": b"2"})


async def test_leases_of_before_the_host_was_started_are_over(open_by: Open) -> None:
    """The host's clock begins anew then: a deadline that is further away than its lease is long is of an earlier life."""
    await leave_behind(await open_by(ManualClock(50_000_000)), 10_000, a=b"1")
    later = await open_by(ManualClock(20_000))
    assert await later.get("a") is None


async def test_a_busy_file_is_an_error_and_a_lease_is_given_up(open_by: Open, tmp_path: Path) -> None:
    """Calls fail in their time while another process holds the file, and all is well afterwards."""
    coordinator = await open_by(host_clock())
    await put(coordinator, a=b"1")
    lease = await coordinator.grant(2000)
    with closing(sqlite3.connect(tmp_path / "c.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CoordinationError):
            await soon(coordinator.transact(expected={}, puts={"a": b"2"}))
        await soon(lease.lost.wait())
        other.execute("ROLLBACK")
    await put(coordinator, b=b"1")
    assert [entry.key for entry in await coordinator.list("")] == ["a", "b"]


async def test_a_killed_writer_leaves_whole_transactions(tmp_path: Path) -> None:
    """Whenever a process is killed, what it wrote together is there together, and others go on at once."""
    rig = OneHostRig(tmp_path)
    coordinator = await rig.open()
    for _ in range(3):
        async with holder(rig, "writer") as process, watching(coordinator, "pair/") as watched:
            while len(watched.changes) < 100:
                await watched.next()
            process.kill()
        entries = await coordinator.list("pair/")
        assert len({(entry.value, entry.revision) for entry in entries}) == 1
        assert len(entries) == 20
        assert await coordinator.transact(expected={entries[0].key: entries[0].revision}, puts={"mine": b"1"})
    await rig.close()
