"""A large backlog is neither held in memory nor read at start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from querator.items import Item
from querator.limits import Limits
from querator.partition import PartitionState
from querator.waist import Batch, Opened, Partition, Record, StoredBlock
from tests.core.rig import TIMEOUT_MS, Rig

BACKLOG = 200_000
LIMITS = Limits(window_items=2000, window_bytes=200_000, held_bytes=50_000)


class Counting:
    """A partition that counts what is read from it."""

    def __init__(self, inner: Partition) -> None:
        self._inner = inner
        self.blocks = 0
        self.bytes = 0
        self.records = 0

    async def open(self, epoch: int) -> Opened:
        return await self._inner.open(epoch)

    async def commit(self, batch: Batch) -> None:
        await self._inner.commit(batch)

    async def scan_blocks(self, start: int, stop: int, limit: int, reverse: bool = False) -> list[StoredBlock]:
        found = await self._inner.scan_blocks(start, stop, limit, reverse)
        self.blocks += len(found)
        self.bytes += sum(len(block.data) for block in found)
        return found

    async def scan(self, start: bytes, stop: bytes, limit: int, reverse: bool = False) -> list[Record]:
        found = await self._inner.scan(start, stop, limit, reverse)
        self.records += len(found)
        return found

    async def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return await self._inner.get(keys)

    async def close(self) -> None:
        await self._inner.close()


def in_memory(state: PartitionState) -> tuple[int, int]:
    """Items whose payload is held, and everything that has an entry of its own."""
    items = sum(block.count for block in state.blocks.values() if block.body is not None)
    objects = len(state.blocks) + len(state.window) + len(state.done) + len(state._held) + len(state._expiries)
    return items, objects + len(state.leases) + len(state.leases._deadlines) + len(state.due)


async def produce_backlog(rig: Rig) -> None:
    for start in range(0, BACKLOG, 1000):
        items = [Item(payload=b"%09d" % number) for number in range(start, start + 1000)]
        await rig.answer(rig.logical_queue.produce(items, [], 9000, TIMEOUT_MS))


async def test_memory_does_not_grow_with_the_backlog(rig: Rig) -> None:
    """With far more items than fit, the window, the blocks and the held payloads stay within their limits."""
    await rig.open(limits=LIMITS)
    await produce_backlog(rig)
    state = rig.member().state
    assert rig.stats().ready == BACKLOG
    items, objects = in_memory(state)
    assert items <= LIMITS.window_items + LIMITS.block_items
    assert objects < 20
    for _ in range(50):
        given = await rig.reserve(1000)
        await rig.complete(given.ids)
        items, objects = in_memory(state)
        assert items < 5 * LIMITS.window_items
        assert objects < 60
    assert state.window_bytes == sum(block.size for block in state.window.values())


async def test_opening_reads_a_bounded_part_of_the_backlog(rig: Rig) -> None:
    """However many items wait, an opening reads some blocks at the head, and serves the oldest first."""
    await rig.open()
    await produce_backlog(rig)
    counting: list[Counting] = []

    def wrap(partition: Partition) -> Partition:
        counting.append(Counting(partition))
        return counting[-1]

    rig.wrap = wrap
    rig.limits = LIMITS
    await rig.crash_and_reopen()
    stored_bytes = rig.member().state.summary.block_bytes
    assert rig.stats().ready == BACKLOG
    assert counting[0].bytes < 2_200_000 < stored_bytes
    assert counting[0].records == 0
    assert (await rig.reserve(2)).payloads == ["000000000", "000000001"]
