"""What every coordinator promises about keys and transactions. `coordinators.py` says which there are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cluster.coordinator import CoordinationError, Coordinator
from cluster.one_host import OneHostCoordinator
from tests.conformance.coordinators import Rig, coordinator, other, put, rig, shared_etcd

__all__ = ["coordinator", "other", "rig", "shared_etcd"]


async def test_what_was_written_is_read_with_its_revision(coordinator: Coordinator) -> None:
    """An entry carries the revision of the transaction that wrote it; revisions grow."""
    first = await put(coordinator, a=b"1")
    second = await put(coordinator, b=b"\x00\xff")
    assert second > first
    assert await coordinator.get("a") == ("a", b"1", first)
    assert await coordinator.get("b") == ("b", b"\x00\xff", second)
    assert await coordinator.get("c") is None


async def test_a_list_is_by_prefix_and_in_order(coordinator: Coordinator) -> None:
    """Prefixes are plain text: no character in them has a meaning, and none is folded."""
    keys = ["q/a", "q/b%", "q/b_", "q/é", "q/a/b", "q", "r/a", "Q/a", "q/%"]
    await coordinator.transact(expected={}, puts=dict.fromkeys(keys, b"x"))
    assert [entry.key for entry in await coordinator.list("q/")] == sorted(key for key in keys if key.startswith("q/"))
    assert [entry.key for entry in await coordinator.list("q/b%")] == ["q/b%"]
    assert await coordinator.list("z") == []
    assert len(await coordinator.list("")) == len(keys)


async def test_a_transaction_writes_all_or_nothing(coordinator: Coordinator) -> None:
    """One expectation that does not hold refuses every write and every delete of the transaction."""
    revision = await put(coordinator, a=b"1", b=b"1")
    refused = await coordinator.transact(
        expected={"a": revision, "b": revision + 1}, puts={"a": b"2", "c": b"2"}, deletes=["b"]
    )
    assert refused is None
    assert {entry.key: entry.value for entry in await coordinator.list("")} == {"a": b"1", "b": b"1"}
    assert await coordinator.transact(expected={"a": revision, "b": revision}, puts={"a": b"2"}, deletes=["b"])
    assert {entry.key: entry.value for entry in await coordinator.list("")} == {"a": b"2"}


async def test_a_key_that_must_not_exist(coordinator: Coordinator) -> None:
    """Revision 0 means absence: of two creations the second is refused, until the key is deleted."""
    assert await coordinator.transact(expected={"a": 0}, puts={"a": b"1"})
    assert await coordinator.transact(expected={"a": 0}, puts={"a": b"2"}) is None
    assert await coordinator.transact(expected={}, puts={}, deletes=["a", "never was"])
    assert await coordinator.transact(expected={"a": 0}, puts={"a": b"3"})


async def test_of_two_who_expect_the_same_one_wins(coordinator: Coordinator, other: Coordinator) -> None:
    """Compare-and-set holds between coordinators on the same data, and no increment is lost."""
    await put(coordinator, n=b"0")

    async def increment(coordinator: Coordinator) -> None:
        for _ in range(10):
            while True:
                entry = await coordinator.get("n")
                assert entry is not None
                value = str(int(entry.value) + 1).encode()
                if await coordinator.transact(expected={"n": entry.revision}, puts={"n": value}):
                    break

    await asyncio.gather(*(increment(each) for each in (coordinator, other) * 2))
    entry = await coordinator.get("n")
    assert entry is not None
    assert entry.value == b"40"


async def test_of_many_creations_one_wins(coordinator: Coordinator, other: Coordinator) -> None:
    """Of all who create the same key at once, through any coordinator, exactly one is told that it did."""
    made = await asyncio.gather(
        *(each.transact(expected={"a": 0}, puts={"a": b"1"}) for each in (coordinator, other) * 16)
    )
    assert len([revision for revision in made if revision]) == 1


async def test_a_transaction_may_be_large(coordinator: Coordinator) -> None:
    """A queue of 1024 partitions is made in one transaction; so many entries are also listed, and deleted again."""
    puts = {f"doomed/{number:04}": b"local-0" for number in range(1025)}
    revision = await coordinator.transact(expected={"doomed/0000": 0}, puts=puts)
    listed = await coordinator.list("doomed/")
    assert [(entry.key, entry.revision) for entry in listed] == [(key, revision) for key in puts]
    assert await coordinator.transact(expected={"doomed/0000": revision or 0}, puts={}, deletes=list(puts))
    assert await coordinator.list("doomed/") == []


async def test_a_key_is_put_or_deleted_and_not_both(coordinator: Coordinator) -> None:
    """What has no meaning is refused, and changes nothing."""
    await put(coordinator, a=b"1")
    with pytest.raises(ValueError, match="the same key: a"):
        await coordinator.transact(expected={}, puts={"a": b"2"}, deletes=["a"])
    entry = await coordinator.get("a")
    assert entry is not None
    assert entry.value == b"1"


async def test_a_closed_coordinator_says_so(coordinator: Coordinator) -> None:
    """Its calls fail, they neither hang nor crash; closing it again is nothing."""
    await coordinator.close()
    await coordinator.close()
    with pytest.raises(CoordinationError, match="closed"):
        await coordinator.get("a")
    with pytest.raises(CoordinationError, match="closed"):
        await coordinator.transact(expected={}, puts={"a": b"1"})


async def test_everything_is_there_after_a_restart(rig: Rig) -> None:
    """What was answered is durable, and revisions go on from where they were."""
    before = await rig.open()
    revision = await put(before, a=b"1")
    await before.close()
    after = await rig.open()
    assert await after.get("a") == ("a", b"1", revision)
    assert await put(after, b=b"1") > revision


@pytest.mark.parametrize("steps", range(8))
async def test_a_caller_that_goes_away_disturbs_nobody_else(coordinator: Coordinator, steps: int) -> None:
    """A transaction whose caller is cancelled at any step lands whole or not at all, and the next one works."""
    going = asyncio.ensure_future(coordinator.transact(expected={}, puts={"a": b"1", "b": b"1"}))
    for _ in range(steps):
        await asyncio.sleep(0.0002)
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    await put(coordinator, c=b"1")
    await put(coordinator, d=b"1")
    assert len(await coordinator.list("")) in {2, 4}


async def test_a_place_that_cannot_be_opened_is_an_error_of_coordination(tmp_path: Path) -> None:
    """It says what is wrong, and not that something is."""
    with pytest.raises(CoordinationError, match="cannot be opened"):
        await OneHostCoordinator.open(tmp_path)
