"""Scans and gets: order, bounds and limits, the same on every backend."""

from __future__ import annotations

import itertools

import pytest

from querator.waist import MAX_BLOCK_ID, Backend, Batch, Missing, Partition

KEYS = [
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x00\xff",
    b"a",
    b"a\x00",
    b"ab",
    b"b",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\x00",
    b"\xff\xff",
]
IDS = [1, 2, 300, 2**31, 2**32 + 1, 2**62, MAX_BLOCK_ID - 1, MAX_BLOCK_ID]
END = b"\xff\xff\xff"


@pytest.fixture
async def filled(partition: Partition) -> Partition:
    """A partition with all of KEYS and IDS, written in another order than theirs."""
    await partition.commit(
        Batch(
            number=1,
            summary=b"",
            blocks={block_id: b"block %d" % block_id for block_id in IDS[::-1]},
            puts={key: b"value " + key for key in KEYS[::2] + KEYS[1::2]},
        )
    )
    return partition


async def test_keys_are_in_the_order_of_their_bytes(filled: Partition) -> None:
    """A scan of everything gives all records, ordered bytewise, with their values; reversed, the reverse."""
    assert await filled.scan(b"", END, 100) == [(key, b"value " + key) for key in KEYS]
    assert [record.key for record in await filled.scan(b"", END, 100, reverse=True)] == KEYS[::-1]


async def test_a_scan_includes_its_start_and_not_its_stop(filled: Partition) -> None:
    """For every pair of bounds, a scan holds just the keys from the start up to and without the stop."""
    for start, stop in itertools.product(KEYS, KEYS):
        expected = [key for key in KEYS if start <= key < stop]
        assert [record.key for record in await filled.scan(start, stop, 100)] == expected
        assert [record.key for record in await filled.scan(start, stop, 100, reverse=True)] == expected[::-1]


async def test_blocks_are_in_the_order_of_their_ids(filled: Partition) -> None:
    """A scan of everything gives all blocks in the order of ids up to the largest possible; reversed, the reverse."""
    assert await filled.scan_blocks(1, MAX_BLOCK_ID + 1, 100) == [
        (block_id, b"block %d" % block_id) for block_id in IDS
    ]
    found = await filled.scan_blocks(0, MAX_BLOCK_ID + 1, 100, reverse=True)
    assert [block.id for block in found] == IDS[::-1]


async def test_a_block_scan_includes_its_start_and_not_its_stop(filled: Partition) -> None:
    """For every pair of bounds, a scan holds just the blocks from the start up to and without the stop."""
    for start, stop in itertools.product([0, *IDS], [0, *IDS, MAX_BLOCK_ID + 1]):
        expected = [block_id for block_id in IDS if start <= block_id < stop]
        assert [block.id for block in await filled.scan_blocks(start, stop, 100)] == expected


@pytest.mark.parametrize("limit", [0, 1, 3, 100])
async def test_a_scan_stops_at_its_limit(filled: Partition, limit: int) -> None:
    """A scan gives the first of what is there in its direction, and never more than its limit."""
    assert [record.key for record in await filled.scan(b"", END, limit)] == KEYS[:limit]
    assert [record.key for record in await filled.scan(b"", END, limit, reverse=True)] == KEYS[::-1][:limit]
    assert [block.id for block in await filled.scan_blocks(1, MAX_BLOCK_ID + 1, limit)] == IDS[:limit]
    reverse = await filled.scan_blocks(1, MAX_BLOCK_ID + 1, limit, reverse=True)
    assert [block.id for block in reverse] == IDS[::-1][:limit]


async def test_get_gives_what_exists(filled: Partition) -> None:
    """Of many keys, some twice, get gives each that exists, once."""
    assert await filled.get([]) == {}
    assert await filled.get([b"none"]) == {}
    absent = [b"none %d" % number for number in range(100)]
    assert await filled.get([*KEYS, *absent, *KEYS]) == {key: b"value " + key for key in KEYS}


async def test_what_is_removed_is_not_found(filled: Partition) -> None:
    """Removed keys and blocks are in no scan and no get, and come back only if they are put again."""
    await filled.commit(Batch(number=2, summary=b"", dropped_blocks=IDS[:-1], deletes=KEYS[1:]))
    assert await filled.scan(b"", END, 100) == [(b"", b"value ")]
    assert await filled.get(KEYS) == {b"": b"value "}
    assert [block.id for block in await filled.scan_blocks(1, MAX_BLOCK_ID + 1, 100)] == [MAX_BLOCK_ID]
    await filled.commit(Batch(number=3, summary=b"", puts={b"a": b"again"}, blocks={IDS[2]: b"again"}))
    assert await filled.scan(b"\x00", END, 100) == [(b"a", b"again")]
    assert (await filled.scan_blocks(1, MAX_BLOCK_ID, 100)) == [(IDS[2], b"again")]


async def test_a_long_run_keeps_its_order_while_its_head_is_dropped(partition: Partition) -> None:
    """A queue's life, blocks added at the tail and dropped at the head, leaves just the middle, in order."""
    for number in range(1, 400):
        dropped = [number - 20] if number > 20 else []
        await partition.commit(Batch(number=number, summary=b"", blocks={number: b"x"}, dropped_blocks=dropped))
    assert [block.id for block in await partition.scan_blocks(1, MAX_BLOCK_ID + 1, 1000)] == list(range(380, 400))


async def test_a_scan_of_what_does_not_exist_is_refused(backend: Backend) -> None:
    """Scans and gets of a partition that was never created say so."""
    partition = backend.partition(404)
    with pytest.raises(Missing):
        await partition.scan(b"", END, 1)
    with pytest.raises(Missing):
        await partition.scan_blocks(1, 2, 1)
    with pytest.raises(Missing):
        await partition.get([b"a"])
