"""A backend as a whole: its list of partitions, its health, its end, and what is there after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from querator.waist import Backend, Batch, Fenced, Missing, Opened, Partition, StorageError

if TYPE_CHECKING:
    from tests.conformance.conftest import Storage


async def test_the_list_follows_create_and_drop(backend: Backend) -> None:
    """The list holds what was created and not dropped, in the order of integers."""
    assert await backend.list() == []
    for uid in (10, 2, 2**40, 0):
        await backend.create(uid)
    assert await backend.list() == [0, 2, 10, 2**40]
    await backend.drop(2)
    assert await backend.list() == [0, 10, 2**40]


async def test_creating_what_exists_changes_nothing(backend: Backend, partition: Partition) -> None:
    """A second create keeps the data, the number and the epoch."""
    await partition.commit(Batch(number=1, summary=b"s", puts={b"k": b"v"}))
    await backend.create(1)
    assert await partition.get([b"k"]) == {b"k": b"v"}
    await partition.commit(Batch(number=2, summary=b""))


async def test_dropping_what_does_not_exist_is_no_error(backend: Backend) -> None:
    """A drop may be repeated."""
    await backend.drop(404)
    await backend.create(1)
    await backend.drop(1)
    await backend.drop(1)
    assert await backend.list() == []


async def test_opening_what_does_not_exist_is_refused(backend: Backend) -> None:
    """A partition that was never created, or was dropped, cannot be opened."""
    with pytest.raises(Missing):
        await backend.partition(404).open(1)
    await backend.create(1)
    await backend.drop(1)
    with pytest.raises(Missing):
        await backend.partition(1).open(1)


async def test_a_partition_that_is_made_again_is_empty(backend: Backend, partition: Partition) -> None:
    """After drop and create nothing of the earlier data, number, summary or epoch is left."""
    blocks = dict.fromkeys(range(1, 200), b"x")
    await partition.open(9)
    await partition.commit(
        Batch(number=1, summary=b"s", blocks=blocks, puts={b"%d" % key: b"x" for key in range(3000)})
    )
    await backend.drop(1)
    await backend.create(1)
    again = backend.partition(1)
    assert await again.open(1) == Opened(0, b"")
    assert await again.scan_blocks(1, 1000, 10) == []
    assert await again.scan(b"", b"\xff", 10) == []


async def test_drop_and_create_at_the_same_time_leave_one_of_both(backend: Backend, partition: Partition) -> None:
    """A create beside a drop ends with the old partition gone, and with an empty one or none."""
    blocks = dict.fromkeys(range(1, 500), b"x")
    await partition.commit(Batch(number=1, summary=b"s", blocks=blocks))
    await asyncio.gather(backend.drop(1), backend.create(1))
    for uid in await backend.list():
        assert await backend.partition(uid).open(1) == Opened(0, b"")
        assert await backend.partition(uid).scan_blocks(1, 1000, 10) == []


async def test_dropping_one_partition_leaves_the_others(backend: Backend, partition: Partition) -> None:
    """The data of a partition does not depend on its neighbours."""
    await backend.create(11)
    await partition.commit(Batch(number=1, summary=b"s", blocks={1: b"x"}))
    await backend.drop(11)
    assert await partition.scan_blocks(1, 2, 1) == [(1, b"x")]


async def test_a_backend_says_who_it_is_and_that_it_is_well(backend: Backend) -> None:
    """Name, driver, affinity and health are told."""
    assert backend.name
    assert backend.driver
    assert backend.affinity == 1.0
    assert await backend.health() == (True, "")


async def test_a_closed_backend_refuses(backend: Backend, partition: Partition) -> None:
    """After close, which may be called twice, every call fails and nothing hangs."""
    await backend.close()
    await backend.close()
    with pytest.raises(StorageError):
        await partition.commit(Batch(number=1, summary=b""))
    with pytest.raises(StorageError):
        await partition.open(2)
    with pytest.raises(StorageError):
        await partition.scan(b"", b"\xff", 1)
    with pytest.raises(StorageError):
        await backend.list()
    with pytest.raises(StorageError):
        await backend.create(2)
    with pytest.raises(StorageError):
        await backend.drop(1)
    assert not (await backend.health()).ok
    await partition.close()


async def test_closing_finishes_what_was_submitted(backend: Backend, partition: Partition) -> None:
    """A commit that is under way when the backend closes is answered, not forgotten."""
    commit = asyncio.create_task(partition.commit(Batch(number=1, summary=b"")))
    await asyncio.sleep(0)
    await backend.close()
    await asyncio.wait_for(commit, 30)


async def test_everything_is_there_after_closing_and_opening(lasting: Storage) -> None:
    """A backend that is opened again has the same partitions, with data, number, summary and epoch."""
    first = await lasting.open()
    for uid in (1, 2):
        await first.create(uid)
        partition = first.partition(uid)
        await partition.open(7)
        await partition.commit(Batch(number=1, summary=b"s%d" % uid, blocks={uid: b"x"}, puts={b"k": b"v"}))
    await first.close()
    second = await lasting.open()
    assert await second.list() == [1, 2]
    partition = second.partition(2)
    with pytest.raises(Fenced):
        await partition.open(6)
    assert await partition.open(7) == Opened(1, b"s2")
    assert await partition.scan_blocks(1, 10, 10) == [(2, b"x")]
    assert await partition.get([b"k"]) == {b"k": b"v"}


async def test_two_backends_on_the_same_data_fence_each_other(lasting: Storage) -> None:
    """What one process opened, another one fences; what one wrote, the other sees."""
    ours, theirs = await lasting.open(), await lasting.open()
    await ours.create(1)
    old, new = ours.partition(1), theirs.partition(1)
    await old.open(1)
    await old.commit(Batch(number=1, summary=b"s", blocks={1: b"x"}))
    assert await new.open(2) == Opened(1, b"s")
    with pytest.raises(Fenced):
        await old.commit(Batch(number=2, summary=b"", blocks={2: b"old"}))
    await new.commit(Batch(number=2, summary=b"", blocks={2: b"new"}))
    assert await old.scan_blocks(1, 10, 10) == [(1, b"x"), (2, b"new")]


async def test_two_backends_on_the_same_data_write_beside_each_other(lasting: Storage) -> None:
    """Owners of different partitions commit at the same time from two backends, and all of it lands."""
    backends = [await lasting.open(), await lasting.open()]

    async def write(backend: Backend, uid: int) -> None:
        await backend.create(uid)
        partition = backend.partition(uid)
        await partition.open(1)
        for number in range(1, 31):
            await partition.commit(Batch(number=number, summary=b"", blocks={number: b"x"}))

    await asyncio.gather(*(write(backends[uid % 2], uid) for uid in range(6)))
    for uid in range(6):
        assert len(await backends[0].partition(uid).scan_blocks(1, 100, 100)) == 30
