"""Blocks: runs of items that became ready together, written and deleted as one value.

A block id is a positive 63-bit integer: priority lane (7 bits), the ms at which its items became ready (41 bits), and a
sequence within that ms (15 bits).
"""

from __future__ import annotations

from collections.abc import Collection

from querator import bits
from querator.errors import NotLeased
from querator.items import NEVER_MS, BlockBody, Item, NamedSlots, decode_block, format_id, same_attempt
from querator.leases import Lease

_EPOCH_MS = 1_700_000_000_000
_SEQUENCE_BITS = 15
_TIME_BITS = 41
_TIME_MASK = (1 << _TIME_BITS) - 1
_LANE = 64 << (_TIME_BITS + _SEQUENCE_BITS)  # the middle one: items without priority


def next_block_id(now_ms: int, last_block_id: int) -> int:
    """An id for this instant that is higher than the last one, also if the clock went back."""
    return max(_LANE | (now_ms - _EPOCH_MS) << _SEQUENCE_BITS, last_block_id + 1)


def ready_at_ms(block_id: int) -> int:
    """When the items of a block became ready."""
    return ((block_id >> _SEQUENCE_BITS) & _TIME_MASK) + _EPOCH_MS


class Block:
    """What a logical queue knows of a block. A slot is ready unless it is done or leased."""

    __slots__ = ("body", "count", "done", "id", "leased", "next_expiry_ms", "owners", "ready_at_ms", "size", "tries")

    def __init__(self, block_id: int, count: int, done: int = 0) -> None:
        self.id = block_id
        self.ready_at_ms = ready_at_ms(block_id)
        self.count = count
        self.done = done
        self.leased = 0
        self.owners: list[Lease | None] = []  # by slot, once there is a lease
        self.body: BlockBody | None = None  # None: must be read before an item can be handed out or moved
        self.size = 0  # of the stored value, in bytes
        self.next_expiry_ms = NEVER_MS  # no ready item expires earlier
        self.tries = 0  # no item has more attempts

    @property
    def everything(self) -> int:
        return (1 << self.count) - 1

    @property
    def ready(self) -> int:
        return ((1 << self.count) - 1) & ~(self.done | self.leased)

    def fill(self, body: BlockBody, size: int) -> None:
        """Give the block its items."""
        items = body.items
        assert len(items) == self.count, "a block never changes its size"
        self.body = body
        self.size = size
        self.next_expiry_ms = min([item.expire_at or body.expire_at for item in items])
        self.tries = max([item.attempts for item in items])

    def find_next_expiry(self) -> None:
        """Look again when the next item expires, of those that are still ready."""
        self.next_expiry_ms = min([self.expire_at(slot) for slot in bits.slots(self.ready)], default=NEVER_MS)

    def item(self, slot: int) -> Item:
        assert self.body is not None, "the block was not read"
        return self.body.items[slot]

    def created_at(self, slot: int) -> int:
        return self.item(slot).created_at or self.ready_at_ms

    def expire_at(self, slot: int) -> int:
        assert self.body is not None, "the block was not read"
        return self.body.items[slot].expire_at or self.body.expire_at

    def owner(self, slot: int) -> Lease | None:
        """The lease that the slot is under."""
        return self.owners[slot] if slot < len(self.owners) else None

    def by_lease(self, named: NamedSlots) -> dict[Lease, Collection[int]]:
        """The slots by their lease. Raises `NotLeased` for the first without, or in another hand-out than is named."""
        if isinstance(named, range):
            if lease := self._sole_owner(named):
                return {lease: named}
            named = dict.fromkeys(named, 1)
        found: dict[Lease, Collection[int]] = {}
        owners, count = self.owners, len(self.owners)
        last: Lease | None = None
        slots: list[int] = []
        for slot, attempt in named.items():
            lease = owners[slot] if slot < count else None
            if lease is None or not self.handed_out(slot, attempt):
                raise NotLeased(format_id(self.id, slot, attempt))
            if lease is not last:
                slots = found.setdefault(lease, [])  # type: ignore[assignment]
                last = lease
            slots.append(slot)
        return found

    def handed_out(self, slot: int, attempt: int) -> bool:
        """Whether this is the number of the slot's present hand-out, as far as that is in memory."""
        return self.body is None or same_attempt(attempt, self.body.items[slot].attempts + 1)

    def _sole_owner(self, run: range) -> Lease | None:
        """The lease that all of these first hand-outs are under, if there is one."""
        owners = self.owners[run.start : run.stop]
        if self.tries or len(owners) != len(run) or owners.count(owners[0]) != len(owners):
            return None
        return owners[0]

    def lease(self, slots: int, lease: Lease) -> None:
        assert slots & (self.done | self.leased) == 0, "at most one lease on an item"
        if not self.owners:
            self.owners = [None] * self.count
        for start, stop in bits.runs(slots, self.count):
            self.owners[start:stop] = [lease] * (stop - start)
        self.leased |= slots

    def unlease(self, slots: int) -> None:
        for start, stop in bits.runs(slots, self.count):
            self.owners[start:stop] = [None] * (stop - start)
        self.leased &= ~slots

    def unfit(self, now_ms: int, max_attempts: int) -> int:
        """The ready slots that must not be handed out: expired, or out of attempts."""
        if self.next_expiry_ms > now_ms and not (max_attempts and self.tries >= max_attempts):
            return 0
        mask = 0
        for slot in bits.slots(self.ready):
            if self.expire_at(slot) <= now_ms or (max_attempts and self.item(slot).attempts >= max_attempts):
                mask |= 1 << slot
        return mask


def read_block(block_id: int, data: bytes, done: int = 0) -> Block:
    body = decode_block(data)
    block = Block(block_id, len(body.items), done)
    block.fill(body, len(data))
    return block
