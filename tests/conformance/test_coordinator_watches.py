"""What every coordinator promises about watches: a snapshot, and then every change in order, through everything."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from cluster import one_host_file
from cluster.coordinator import Change, Coordinator, Entry, Snapshot
from tests.conformance.coordinators import (
    Rig,
    coordinator,
    other,
    put,
    rig,
    shared_etcd,
    soon,
    watching,
)

__all__ = ["coordinator", "other", "rig", "shared_etcd"]


async def test_a_watch_tells_what_is_and_then_what_changes(coordinator: Coordinator, other: Coordinator) -> None:
    """The snapshot is that of a list; puts and deletes of anybody follow in order, with their revisions."""
    first = await put(coordinator, **{"q/b": b"1", "q/a": b"1", "r": b"1"})
    async with aclosing(coordinator.watch("q/")) as watch:
        snapshot = await soon(anext(watch))
        assert snapshot == Snapshot((Entry("q/a", b"1", first), Entry("q/b", b"1", first)), snapshot.revision)
        assert snapshot.revision >= first
        second = await put(other, **{"q/c": b"\x00"})
        await put(other, r=b"2")
        third = await other.transact(expected={}, puts={"q/a": b"2"}, deletes=["q/b", "q/never"])
        assert third is not None
        assert await soon(anext(watch)) == Change("q/c", b"\x00", second)
        both = [await soon(anext(watch)), await soon(anext(watch))]
        assert sorted(both) == [Change("q/a", b"2", third), Change("q/b", None, third)]


async def test_no_change_is_missed(coordinator: Coordinator, other: Coordinator) -> None:
    """Each of many changes by several writers is told once, in the order of revisions, while they go on."""

    async def write(writer: Coordinator, name: str) -> list[int]:
        return [await put(writer, **{name: str(number).encode()}) for number in range(40)]

    async with watching(other) as watched:
        writing = asyncio.gather(*(write(each, f"k{index}") for index, each in enumerate((coordinator, other) * 2)))
        while len(watched.changes) < 160:
            await watched.next()
        written = await writing
    assert watched.snapshots == 1
    assert [change.revision for change in watched.changes] == sorted(revision for each in written for revision in each)
    assert watched.state == {entry.key: entry for entry in await coordinator.list("")}


async def test_several_watches_are_told_the_same(coordinator: Coordinator) -> None:
    """Watches of one coordinator do not take changes from each other, and one may end before the others."""
    async with watching(coordinator) as first, watching(coordinator) as second:
        async with watching(coordinator, "b") as third:
            await put(coordinator, a=b"1", b=b"1")
            await third.until(lambda state: state.keys() == {"b"})
        await put(coordinator, c=b"1")
        for watched in (first, second):
            await watched.until(lambda state: state.keys() == {"a", "b", "c"})


async def test_a_watch_whose_history_is_gone_begins_anew(
    rig: Rig, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that was slower than history is kept gets a new snapshot, and goes on from there."""
    monkeypatch.setattr(one_host_file, "KEPT_REVISIONS", 3)
    await put(coordinator, a=b"1")
    async with watching(coordinator) as watched:
        await put(coordinator, a=b"2")
        await put(coordinator, b=b"2")
        await coordinator.transact(expected={}, puts={}, deletes=["a"])
        await rig.forget()
        await watched.until(lambda state: state == {"b": b"2"})
        assert watched.snapshots == 2
        await put(coordinator, c=b"1")
        await watched.until(lambda state: state == {"b": b"2", "c": b"1"})
        assert watched.snapshots == 2


async def test_a_watch_ends_with_its_coordinator(coordinator: Coordinator) -> None:
    """Who waits for a change when the coordinator is closed gets the end, and no error."""

    async def consume() -> int:
        events = 0
        async with aclosing(coordinator.watch("")) as watch:
            async for _ in watch:
                events += 1
                reached.set()
        return events

    reached = asyncio.Event()
    consuming = asyncio.ensure_future(consume())
    await soon(reached.wait())
    await put(coordinator, a=b"1")
    await asyncio.sleep(0)
    await coordinator.close()
    assert await soon(consuming) in {1, 2}


async def test_a_consumer_that_is_cancelled_disturbs_nobody(coordinator: Coordinator) -> None:
    """It is cancelled where it waits, and other watches and calls go on."""

    async def consume() -> None:
        async with aclosing(coordinator.watch("")) as watch:
            async for _ in watch:
                reached.set()

    reached = asyncio.Event()
    consuming = asyncio.ensure_future(consume())
    await soon(reached.wait())
    async with watching(coordinator) as watched:
        consuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(consuming)
        await put(coordinator, a=b"1")
        await watched.until(lambda state: state == {"a": b"1"})
