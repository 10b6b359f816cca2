"""The memory of one partition: its head, its leases, its counters. Rebuilt by `open`, changed only after a commit.

What is here is bounded: a window of ready blocks at the head, the leases, the payloads of leased items up to a limit.
The backlog behind the window stays where it is stored.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable

from querator import bits, records
from querator.blocks import Block, read_block
from querator.items import NEVER_MS, Item, decode_block, decode_item, parse_id
from querator.leases import Lease, LeaseGroup, Leases
from querator.limits import Limits
from querator.queues import PartitionPlace
from querator.records import Summary
from querator.waist import Partition, Record

_PAGE = 1000
_READ_BYTES = 2_097_152  # of blocks, by one read
_DUE_AT_ONCE = 1000  # scheduled items, by one read


class PartitionState:
    """Holds what is committed, and nothing else: a turn keeps what it intends to itself."""

    def __init__(self, place: PartitionPlace, stored: Partition, limits: Limits) -> None:
        self.place = place
        self.stored = stored
        self.limits = limits
        self.arrived = 0  # items that were produced or delivered since the partition became ours
        self.completed = 0
        self._forget()

    def _forget(self) -> None:
        self.commit_number = 0
        self.summary = Summary()
        self.blocks: dict[int, Block] = {}  # with a ready item in the window, or a leased one
        self.window: OrderedDict[int, Block] = OrderedDict()  # with a ready item, in the order of ids
        self.window_end = 0  # every block up to this id that has a ready item is in the window
        self.window_items = 0
        self.window_bytes = 0
        self.done: dict[int, int] = {}  # the done slots of blocks that are not in memory
        self.leases = Leases()
        self.leased = 0
        self.leased_ready_at_sum = 0
        self.next_due_ms = NEVER_MS  # of the scheduled items that are not yet read
        self.due: dict[bytes, Item] = {}  # scheduled items that were read and wait for a turn
        self.received: dict[int, int] = {}  # partition uid → last outbox entry received from it
        self._expiries: list[tuple[int, int]] = []  # heap of (next expiry, block id) over the window
        self._held: OrderedDict[int, Block] = OrderedDict()  # read, without a ready item; the oldest first
        self._held_bytes = 0
        self._wanted: set[int] = set()  # blocks whose items the next turn needs
        self._dropped_meanwhile: set[int] | None = None  # while blocks are being read
        self._scheduled_meanwhile_ms = NEVER_MS  # the earliest, while scheduled items are being read

    @property
    def ready(self) -> int:
        return self.summary.items - self.leased

    @property
    def complete(self) -> bool:
        """Whether all ready items are in the window."""
        return self.window_end >= self.summary.last_block_id

    # Reading.

    async def open(self) -> None:
        """Take the partition over and rebuild the memory. Costs as much as there are leases, not items."""
        self._forget()
        opened = await self.stored.open(self.place.epoch)
        self.commit_number = opened.number
        if opened.summary:
            self.summary = records.decode_summary(opened.summary)
        async for key, value in self._records(records.DONE):
            self.done[records.key_number(key)] = bits.from_bytes(value)
        async for key, value in self._records(records.LEASE):
            self._restore_leases(records.key_number(key), records.decode_leases(value))
        async for key, value in self._records(records.RECEIVED):
            self.received[records.key_number(key)] = int.from_bytes(value, "big")
        await self.read_due(0)
        self.window_end = max(0, self.summary.head_block_id - 1)
        await self.read_ahead()

    async def _records(self, prefix: bytes) -> AsyncIterator[Record]:
        start, stop = records.all_of(prefix)
        while page := await self.stored.scan(start, stop, _PAGE):
            for record in page:
                yield record
            start = page[-1].key + b"\x00"

    def _restore_leases(self, group_id: int, stored: records.LeaseRecords) -> None:
        group = LeaseGroup(group_id)
        for lease_id, record in enumerate(stored, group_id):
            if slots := self._restore_slots(record):
                self.grant(Lease(lease_id, record.client_id, record.deadline, slots), group)

    def _restore_slots(self, record: records.LeaseRecord) -> dict[int, int]:
        """What is left of a lease; slots that are done may still be named."""
        slots: dict[int, int] = {}
        for block_id, count, mask in record.slots:
            block = self.blocks.get(block_id)
            if block is None:
                block = self.blocks[block_id] = Block(block_id, count, self.done.pop(block_id, 0))
            if left := bits.from_bytes(mask) & ~block.done:
                slots[block_id] = left
        return slots

    def wants_to_read_ahead(self) -> bool:
        return (
            not self.complete
            and self._dropped_meanwhile is None
            and self.window_items <= self.limits.window_items // 2
            and self.window_bytes <= self.limits.window_bytes // 2
        )

    async def read_ahead(self) -> None:
        """Bring the next blocks of the backlog into the window. Must not run twice at a time."""
        assert self._dropped_meanwhile is None, "one reader at a time"
        self._dropped_meanwhile = set()
        try:
            last_block_id = self.summary.last_block_id
            limit = self._blocks_per_read()
            page = await self.stored.scan_blocks(self.window_end + 1, last_block_id + 1, limit)
            for block_id, data in page:
                if block_id not in self._dropped_meanwhile:
                    self._take_in(block_id, data)
            self.window_end = page[-1].id if len(page) == limit else last_block_id
        finally:
            self._dropped_meanwhile = None

    def _blocks_per_read(self) -> int:
        blocks = max(1, self.summary.blocks)
        by_bytes = _READ_BYTES // max(1, self.summary.block_bytes // blocks)
        by_items = self.limits.window_items // max(1, self.summary.items // blocks)
        return max(1, min(_PAGE, by_bytes, by_items))

    def _take_in(self, block_id: int, data: bytes) -> None:
        block = self.blocks.get(block_id)
        if block is None:
            block = read_block(block_id, data, self.done.pop(block_id, 0))
        elif block.body is None:
            block.fill(decode_block(data), len(data))
        self.remember(block)

    async def read_bodies(self, block_ids: Iterable[int]) -> None:
        """Have the items of leased blocks in memory, and keep them until `let_go`."""
        self.keep(block_ids)
        unread = [each for each in block_ids if each in self.blocks and self.blocks[each].body is None]
        for block_id in unread:
            page = await self.stored.scan_blocks(block_id, block_id + 1, 1)
            block = self.blocks.get(block_id)
            if page and block is not None and block.body is None:
                block.fill(decode_block(page[0].data), len(page[0].data))
                if not block.ready:
                    self._hold(block)

    async def read_due(self, now_ms: int) -> None:
        """Bring the scheduled items that are due into memory, and find out when the next is.

        Must not run while some that were read wait for their turn: they would come twice.
        """
        assert not self.due, "what was read has had its turn"
        self._scheduled_meanwhile_ms = NEVER_MS
        page = await self.stored.scan(*records.all_of(records.SCHEDULED), _DUE_AT_ONCE + 1)
        next_due_ms = NEVER_MS
        for key, value in page:
            if records.due_at(key) > now_ms or len(self.due) >= _DUE_AT_ONCE:
                next_due_ms = records.due_at(key)
                break
            self.due[key] = decode_item(value)
        self.next_due_ms = min(next_due_ms, self._scheduled_meanwhile_ms)

    # Choosing.

    def leases_of(self, ids: list[str]) -> set[Lease]:
        """The leases under which these items are now, if they are under any."""
        found: set[Lease] = set()
        for item_id in ids:
            place = parse_id(item_id)
            block = self.blocks.get(place.block_id)
            lease = block.owner(place.slot) if block is not None else None
            if block is not None and lease is not None and block.handed_out(place.slot, place.attempt):
                found.add(lease)
        return found

    def has_due(self, now_ms: int) -> bool:
        """Whether a turn has to deal with a scheduled item, a lease or an item whose time has come."""
        return bool(self.due) or self.leases.next_deadline_ms() <= now_ms or self.next_expiry_ms() <= now_ms

    def next_expiry_ms(self) -> int:
        """When the next ready item in the window expires, or NEVER_MS."""
        expiries = self._expiries
        while expiries and expiries[0][1] not in self.window:
            heapq.heappop(expiries)
        return expiries[0][0] if expiries else NEVER_MS

    def expiring(self, now_ms: int, limit: int) -> list[Block]:
        """Up to ``limit`` blocks in the window that hold an expired item."""
        found: list[Block] = []
        looked_at: dict[int, Block] = {}
        while len(found) < limit and self.next_expiry_ms() <= now_ms:
            block_id = heapq.heappop(self._expiries)[1]
            if block_id not in looked_at:
                block = looked_at[block_id] = self.window[block_id]
                block.find_next_expiry()
                if block.next_expiry_ms <= now_ms:
                    found.append(block)
        for block in looked_at.values():
            if block.next_expiry_ms != NEVER_MS:
                heapq.heappush(self._expiries, (block.next_expiry_ms, block.id))
        return found

    # Changing, after a commit only.

    def remember(self, block: Block) -> None:
        """Keep a block that was read or written: in the window if it has ready items, else while it is leased."""
        if block.id in self.window:
            return
        if block.ready:
            self._let_go_of(block)
            self.blocks[block.id] = block
            self.window[block.id] = block
            self.window_items += block.ready.bit_count()
            self.window_bytes += block.size
            if block.next_expiry_ms != NEVER_MS:
                heapq.heappush(self._expiries, (block.next_expiry_ms, block.id))
        elif block.leased:
            self.blocks[block.id] = block
            self._hold(block)

    def make_ready(self, block: Block, count: int) -> None:
        """Slots that were leased are ready again, in their place."""
        if block.id in self.window:
            self.window_items += count
        elif block.id <= self.window_end:  # else it is found when the window gets there
            self.remember(block)
            self.window = OrderedDict(sorted(self.window.items()))

    def has_room(self) -> bool:
        return self.window_items < self.limits.window_items and self.window_bytes < self.limits.window_bytes

    def grant(self, lease: Lease, group: LeaseGroup, *, were_ready: bool = True) -> None:
        """Put items under a lease; their blocks are in memory."""
        for block_id, slots in lease.slots.items():
            block = self.blocks[block_id]
            block.lease(slots, lease)
            count = slots.bit_count()
            self.leased += count
            self.leased_ready_at_sum += count * block.ready_at_ms
            if were_ready and block_id in self.window:
                self._left_window(block, count)
        group.join(lease)
        self.leases.add(lease)

    def release(self, lease: Lease, freed: dict[int, int], left: dict[int, int]) -> None:
        """Take slots out of a lease; it ends with the last."""
        for block_id, slots in freed.items():
            block = self.blocks[block_id]
            block.unlease(slots)
            count = slots.bit_count()
            self.leased -= count
            self.leased_ready_at_sum -= count * block.ready_at_ms
        lease.slots = left
        if not left:
            del lease.group.leases[lease.id]
            self.leases.remove(lease)

    def finish(self, block: Block, slots: int, *, were_ready: int) -> None:
        """Mark slots, which are under no lease any more, as done; a block ends with its last."""
        block.done |= slots
        if were_ready and block.id in self.window:
            self._left_window(block, were_ready)
        if block.done == block.everything:
            self._drop(block)
        elif block.id not in self.blocks:
            self.done[block.id] = block.done

    def _left_window(self, block: Block, count: int) -> None:
        self.window_items -= count
        if not block.ready:
            del self.window[block.id]
            self.window_bytes -= block.size
            if block.leased:
                self._hold(block)

    def _drop(self, block: Block) -> None:
        self.blocks.pop(block.id, None)
        self.done.pop(block.id, None)
        self._let_go_of(block)
        if self._dropped_meanwhile is not None:
            self._dropped_meanwhile.add(block.id)

    def _hold(self, block: Block) -> None:
        if block.body is None or block.id in self._held:
            return
        self._held[block.id] = block
        self._held_bytes += block.size
        if self._held_bytes > self.limits.held_bytes:
            self._evict()

    def _let_go_of(self, block: Block) -> None:
        if self._held.pop(block.id, None) is not None:
            self._held_bytes -= block.size

    def _evict(self) -> None:
        """Let go of the oldest payloads that nobody wants."""
        for _ in range(len(self._held)):
            if self._held_bytes <= self.limits.held_bytes:
                return
            block_id, block = self._held.popitem(last=False)
            if block_id in self._wanted:
                self._held[block_id] = block
            else:
                self._held_bytes -= block.size
                block.body = None

    def keep(self, block_ids: Iterable[int]) -> None:
        """Do not let go of the items of these blocks, until `let_go`."""
        self._wanted.update(block_ids)

    def let_go(self) -> None:
        """Another turn is made: what the one before needed is not needed any more."""
        self._wanted.clear()

    def scheduled_at(self, due_at_ms: int) -> None:
        """A scheduled item was written."""
        self.next_due_ms = min(self.next_due_ms, due_at_ms)
        self._scheduled_meanwhile_ms = min(self._scheduled_meanwhile_ms, due_at_ms)

    def head_block_id(self) -> int:
        """No block below it has a ready item."""
        return next(iter(self.window), self.window_end + 1)
