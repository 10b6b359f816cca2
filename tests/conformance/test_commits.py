"""Fencing, numbering and atomicity: what every backend owes to its owner's commits."""

from __future__ import annotations

import asyncio

import pytest

from querator.waist import MAX_BLOCK_ID, Backend, Batch, Fenced, Missing, Opened, Partition, StorageError


async def contents(partition: Partition) -> tuple[dict[int, bytes], dict[bytes, bytes]]:
    blocks = await partition.scan_blocks(1, MAX_BLOCK_ID + 1, 10_000)
    records = await partition.scan(b"", b"\xff" * 64, 10_000)
    return dict(blocks), dict(records)


def full_batch(number: int, block_id: int = 1) -> Batch:
    return Batch(number=number, summary=b"s%d" % number, blocks={block_id: b"block"}, puts={b"key": b"value"})


async def test_a_commit_is_there_afterwards(partition: Partition) -> None:
    """What a commit wrote is found by scans and, with its number and summary, by the next open."""
    await partition.commit(full_batch(1))
    assert await contents(partition) == ({1: b"block"}, {b"key": b"value"})
    assert await partition.open(1) == Opened(1, b"s1")


async def test_a_new_partition_is_empty(backend: Backend) -> None:
    """A partition that was just created has number 0, no summary, and nothing in it."""
    await backend.create(1)
    partition = backend.partition(1)
    assert await partition.open(0) == Opened(0, b"")
    assert await contents(partition) == ({}, {})


async def test_an_older_epoch_cannot_open(backend: Backend, partition: Partition) -> None:
    """Opening with an epoch below the stored one is refused, and the owner goes on."""
    await partition.open(5)
    with pytest.raises(Fenced):
        await backend.partition(1).open(4)
    await partition.commit(full_batch(1))


async def test_the_same_epoch_may_open_again(backend: Backend, partition: Partition) -> None:
    """An owner may open again with its epoch, by the same or another handle, and goes on where it was."""
    await partition.commit(full_batch(1))
    assert (await partition.open(1)).number == 1
    again = backend.partition(1)
    assert (await again.open(1)).number == 1
    await again.commit(Batch(number=2, summary=b""))


async def test_a_replaced_owner_writes_nothing(backend: Backend, partition: Partition) -> None:
    """After another open with a higher epoch, the old owner's commit is fenced and leaves no trace."""
    await partition.commit(full_batch(1))
    successor = backend.partition(1)
    await successor.open(2)
    with pytest.raises(Fenced):
        await partition.commit(Batch(number=2, summary=b"x", blocks={2: b"x"}, puts={b"x": b"x"}, dropped_blocks=[1]))
    assert await contents(successor) == ({1: b"block"}, {b"key": b"value"})
    assert await successor.open(2) == Opened(1, b"s1")


async def test_an_owner_that_was_fenced_at_open_stays_fenced(backend: Backend, partition: Partition) -> None:
    """A refused open gives no right to write, also to a handle that had one before."""
    await backend.partition(1).open(3)
    with pytest.raises(Fenced):
        await partition.open(2)
    with pytest.raises(Fenced):
        await partition.commit(full_batch(1))


@pytest.mark.parametrize("number", [0, 1, 3, -1], ids=["zero", "repeat", "gap", "negative"])
async def test_a_number_that_does_not_follow_is_refused(partition: Partition, number: int) -> None:
    """A commit whose number is not the last one's plus one writes nothing and is no fencing."""
    await partition.commit(full_batch(1))
    with pytest.raises(StorageError) as caught:
        await partition.commit(Batch(number=number, summary=b"x", blocks={2: b"x"}, puts={b"x": b"x"}))
    assert not isinstance(caught.value, Fenced)
    assert await contents(partition) == ({1: b"block"}, {b"key": b"value"})
    assert await partition.open(1) == Opened(1, b"s1")


@pytest.mark.parametrize("block_id", [1, 0, -1, MAX_BLOCK_ID + 1], ids=["used", "zero", "negative", "too large"])
async def test_a_failing_batch_leaves_nothing(partition: Partition, block_id: int) -> None:
    """A batch with a block that cannot be written leaves neither blocks nor records nor its number and summary."""
    await partition.commit(full_batch(1))
    bad = Batch(
        number=2,
        summary=b"x",
        blocks={7: b"x", block_id: b"x"},
        puts={b"x": b"x"},
        dropped_blocks=[3],
        deletes=[b"key"],
    )
    with pytest.raises(StorageError):
        await partition.commit(bad)
    assert await contents(partition) == ({1: b"block"}, {b"key": b"value"})
    assert await partition.open(1) == Opened(1, b"s1")
    await partition.commit(Batch(number=2, summary=b""))


async def test_a_failing_batch_does_not_harm_its_neighbours(backend: Backend) -> None:
    """Of batches that are committed together, only those that cannot be written fail."""
    partitions = []
    for uid in range(12):
        await backend.create(uid)
        partitions.append(backend.partition(uid))
        await partitions[-1].open(1)
    batches = [full_batch(1, block_id=0 if uid % 3 == 1 else 1) for uid in range(12)]
    batches[5].number = 9
    outcomes = await asyncio.gather(
        *(partition.commit(batch) for partition, batch in zip(partitions, batches, strict=True)), return_exceptions=True
    )
    for uid, (partition, outcome) in enumerate(zip(partitions, outcomes, strict=True)):
        if uid % 3 == 1 or uid == 5:
            assert isinstance(outcome, StorageError)
            assert await contents(partition) == ({}, {})
            assert await partition.open(1) == Opened(0, b"")
        else:
            assert outcome is None
            assert await contents(partition) == ({1: b"block"}, {b"key": b"value"})


async def test_drops_and_deletes_come_before_puts(partition: Partition) -> None:
    """A key or block that a batch removes and writes is there afterwards, with what the batch wrote."""
    await partition.commit(full_batch(1))
    await partition.commit(
        Batch(number=2, summary=b"", dropped_blocks=[1], blocks={1: b"new"}, deletes=[b"key"], puts={b"key": b"new"})
    )
    assert await contents(partition) == ({1: b"new"}, {b"key": b"new"})


async def test_removing_what_is_not_there_is_no_error(partition: Partition) -> None:
    """Dropping or deleting what never was changes nothing else of the batch."""
    await partition.commit(Batch(number=1, summary=b"s", dropped_blocks=[404], deletes=[b"none"], puts={b"k": b"v"}))
    assert await contents(partition) == ({}, {b"k": b"v"})


async def test_a_put_replaces(partition: Partition) -> None:
    """Putting a record again gives it the new value."""
    await partition.commit(Batch(number=1, summary=b"", puts={b"k": b"one"}))
    await partition.commit(Batch(number=2, summary=b"", puts={b"k": b""}))
    assert await partition.get([b"k"]) == {b"k": b""}


async def test_a_large_block_comes_back_whole(partition: Partition) -> None:
    """Several megabytes of any bytes are stored as they are."""
    data = bytes(range(256)) * 20_000
    await partition.commit(Batch(number=1, summary=data[:5000], blocks={MAX_BLOCK_ID: data}))
    assert await partition.scan_blocks(1, MAX_BLOCK_ID + 1, 1) == [(MAX_BLOCK_ID, data)]
    assert (await partition.open(1)).summary == data[:5000]


async def test_cancelling_the_caller_does_not_take_a_commit_back(partition: Partition) -> None:
    """A commit whose caller is cancelled lands, and opening again waits for it and tells so."""
    caller = asyncio.create_task(partition.commit(full_batch(1)))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await partition.open(1) == Opened(1, b"s1")
    assert await contents(partition) == ({1: b"block"}, {b"key": b"value"})


async def test_closing_waits_for_the_commit_in_flight(backend: Backend, partition: Partition) -> None:
    """When `close` has returned, a commit that was under way has ended."""
    commit = asyncio.create_task(partition.commit(full_batch(1)))
    await asyncio.sleep(0)
    await partition.close()
    await partition.close()
    successor = backend.partition(1)
    assert (await successor.open(2)).number == 1
    await commit


async def test_a_partition_that_is_not_open_refuses(backend: Backend, partition: Partition) -> None:
    """A handle commits only between its open and its close."""
    with pytest.raises(StorageError):
        await backend.partition(1).commit(full_batch(1))
    await partition.close()
    with pytest.raises(StorageError):
        await partition.commit(full_batch(1))
    with pytest.raises(StorageError):
        await partition.scan(b"", b"\xff", 1)
    assert (await backend.partition(1).open(1)).number == 0


async def test_a_dropped_partition_refuses_its_owner(backend: Backend, partition: Partition) -> None:
    """The owner of a partition that was dropped cannot write to it, nor to a new one of the same name."""
    await backend.drop(1)
    with pytest.raises(Missing):
        await partition.commit(full_batch(1))
    await backend.create(1)
    with pytest.raises(Fenced):
        await partition.commit(full_batch(1))


async def test_a_thousand_partitions_commit_at_once(backend: Backend) -> None:
    """Commits of many partitions at the same time all land, each in its own partition."""
    uids = range(1000, 2000)
    await asyncio.gather(*(backend.create(uid) for uid in uids))
    partitions = [backend.partition(uid) for uid in uids]
    await asyncio.gather(*(partition.open(1) for partition in partitions))
    for number in (1, 2):
        await asyncio.gather(
            *(
                partition.commit(Batch(number=number, summary=b"", blocks={number: b"%d" % uid}))
                for uid, partition in zip(uids, partitions, strict=True)
            )
        )
    for uid, partition in list(zip(uids, partitions, strict=True))[::97]:
        assert await contents(partition) == ({1: b"%d" % uid, 2: b"%d" % uid}, {})
    assert all(opened.number == 2 for opened in await asyncio.gather(*(p.open(1) for p in partitions)))
