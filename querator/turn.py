"""One turn of one partition: what is to be written, what changes in memory once it is, and who is answered then.

A turn decides on the committed state alone, and changes nothing of it before `apply`. The order is fixed: add requests
and what is due, `fill` the reserves, `batch`, and after the commit `apply` and `answer`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeAlias

import msgspec

from querator import bits, lifecycle, records
from querator.block_writer import BlockWriter
from querator.blocks import Block
from querator.chooser import Chooser
from querator.errors import NotLeased
from querator.items import NEVER_MS, Item, encode_item, format_id, parse_id, parse_ids
from querator.leases import Lease, LeaseGroup, add_slots
from querator.partition import PartitionState
from querator.queues import QueueSettings
from querator.records import OutboxEntry
from querator.requests import (
    Change,
    Complete,
    Deliver,
    Later,
    Produce,
    Produced,
    Renew,
    Request,
    Reservation,
    Reserve,
    Retry,
    Run,
    Settle,
    Unread,
)
from querator.waist import Batch

_EXPIRED_AT_ONCE = 1000  # items and leases, by one turn

LeasedSlots: TypeAlias = dict[Lease, dict[int, int]]


class Turn:
    def __init__(self, state: PartitionState, settings: QueueSettings, now_ms: int, rng: random.Random) -> None:
        self.state = state
        self.settings = settings
        self.now_ms = now_ms
        self.unread: set[int] = set()  # blocks whose items are needed to end leases, some of them not in memory
        self.expire_at_ms = now_ms + settings.expire_timeout_ms if settings.expire_timeout_ms else NEVER_MS
        self._rng = rng
        self._writer = BlockWriter(
            now_ms=now_ms,
            last_block_id=state.summary.last_block_id,
            expire_at_ms=self.expire_at_ms,
            limits=state.limits,
        )
        self._sequence = state.summary.sequence
        self.answers: list[tuple[Request, Any]] = []  # what each request is told once the commit has landed
        self.buried = 0  # items that die in this turn
        self._reserved: list[tuple[Reserve, Lease]] = []
        self._freed: LeasedSlots = {}  # slots that leave their lease
        self._ended: dict[int, int] = {}  # block id → slots that end: completed, moved, dead or removed
        self._returned: dict[int, int] = {}  # block id → slots that leave their lease and are ready again, in place
        self._visited: dict[int, Block] = {}  # blocks outside of memory that a change brought along
        self._left: LeasedSlots = {}  # what stays under those leases
        self._granted: list[Lease] = []
        self._regranted: list[Lease] = []  # of slots that leave another lease in this turn
        self._renewed: dict[Lease, int] = {}
        self._rewritten: set[LeaseGroup] = set()  # of leases that are renewed, split or taken back
        self._group_left: dict[LeaseGroup, dict[int, int]] = {}
        self._group = LeaseGroup(0)  # of the leases that are granted
        self._scheduled: dict[bytes, Item] = {}
        self._unscheduled: list[bytes] = []
        self._outbox: dict[int, OutboxEntry] = {}
        self._settled: list[int] = []
        self._received: dict[int, int] = {}
        self._batch: Batch | None = None
        self._summary = state.summary

    # Requests.

    def add(self, request: Request) -> None:
        """Take a request into this turn. Raises `Later` or `Unread`, or what the caller is to be told."""
        result = _HANDLERS[type(request)](self, request)
        self.answers.append((request, result))

    def _produce(self, request: Produce) -> Produced:
        runs = self._writer.add(request.items, request.size) if request.items else []
        ids = [self._schedule(due_at_ms, item) for due_at_ms, item in request.scheduled]
        return Produced(self.state.place.number, runs, ids)

    def _complete(self, request: Complete) -> None:
        self._end(self._leased(request.ids))

    def _retry(self, request: Retry) -> None:
        leased = self._leased([item.id for item in request.items])
        self._need_bodies(leased)
        self._end(leased)
        for item in request.items:
            place = parse_id(item.id)
            block = self.state.blocks[place.block_id]
            self._give_back(block, place.slot, item.retry_at_ms, rejected=item.dead, backoff=True)

    def _renew(self, request: Renew) -> int:
        leased = self._leased(request.ids)
        deadline_ms = self.now_ms + (request.lease_timeout_ms or self.settings.lease_timeout_ms)
        for lease, slots in leased.items():
            self._rewritten.add(lease.group)
            if lease.slots == slots:
                self._renewed[lease] = deadline_ms
            else:
                self._regranted.append(Lease(self._next(), lease.client_id, deadline_ms, dict(slots)))
                self._free(lease, slots)
        return deadline_ms

    def _deliver(self, request: Deliver) -> None:
        """Items that another partition's outbox sends; what came before is not taken twice."""
        received = self._received.get(request.source_uid, self.state.received.get(request.source_uid, 0))
        fresh = [(sequence, item) for sequence, item in request.entries if sequence > received]
        if fresh:
            items = [item for _, item in fresh]
            self._writer.add(items, sum(len(item.payload) for item in items))
            self._received[request.source_uid] = fresh[-1][0]

    def _settle(self, request: Settle) -> None:
        self._settled.extend(request.sequences)

    def _change(self, request: Change) -> Any:
        return request.plan(self)

    # What is due.

    def add_due(self) -> None:
        """Scheduled items whose time has come, leases that ran out, and items that expired."""
        for key, item in self.state.due.items():
            self._writer.add([item], len(item.payload))
            self._unscheduled.append(key)
        for lease in self.state.leases.due(self.now_ms, _EXPIRED_AT_ONCE):
            self.expire(lease)
        for block in self.state.expiring(self.now_ms, _EXPIRED_AT_ONCE):
            self._bury_unfit(block)

    def expire(self, lease: Lease) -> None:
        """Give the items of a lease back that this turn does not end otherwise."""
        if lease in self._renewed:
            return
        slots = lease.without(self._freed.get(lease, {}))
        if not self._is_read(slots):
            self.unread.update(slots)
            return
        self._end({lease: slots} if slots else {})
        for block_id, mask in slots.items():
            for slot in bits.slots(mask):
                self._give_back(self.state.blocks[block_id], slot)

    def take_back(self, lease: Lease) -> None:
        """End a lease that nobody has heard of: its items are ready again in their place, and no attempt is counted."""
        slots = {} if lease in self._renewed else lease.without(self._freed.get(lease, {}))
        if not self._is_read(slots):
            self.unread.update(slots)
        elif slots:
            self._free(lease, slots)
            self.state.keep(slots)
            self._rewritten.add(lease.group)
            add_slots(self._returned, slots)

    def _bury_unfit(self, block: Block) -> None:
        unfit = block.unfit(self.now_ms, self.settings.max_attempts) & ~self._ended.get(block.id, 0)
        for slot in bits.slots(unfit):
            expired = block.expire_at(slot) <= self.now_ms
            self._bury(block, slot, block.item(slot).attempts, "expired" if expired else "attempts")
        self.remove(block, unfit)

    # Reserves.

    def fill(self, reserves: list[tuple[Reserve, int]]) -> list[Reserve]:
        """Give each reserve up to its count of items; returns those that went away with nothing."""
        self._writer.finish()
        unfilled = []
        written = (block for block, _ in self._writer.blocks) if self.state.complete else ()
        chooser = Chooser(chain(self.state.window.values(), written), self._fit)
        for reserve, count in reserves:
            taken, runs = chooser.take(count)
            if not taken:
                unfilled.append(reserve)
                continue
            deadline_ms = self.now_ms + (reserve.lease_timeout_ms or self.settings.lease_timeout_ms)
            lease = Lease(self._next(), reserve.client_id, deadline_ms, taken)
            self._granted.append(lease)
            self._reserved.append((reserve, lease))
            self.answers.append((reserve, Reservation(self.state.place.number, deadline_ms, runs)))
        return unfilled

    def _fit(self, block: Block) -> int:
        """The slots of a block that may be handed out; what must not be, is buried, but not before it is stored."""
        if block.id not in self.state.blocks:
            return block.ready & ~block.unfit(self.now_ms, self.settings.max_attempts)
        self._bury_unfit(block)
        return self.unclaimed(block)

    # What happens to items.

    def _leased(self, ids: list[str]) -> LeasedSlots:
        """The slots that these ids name, all of them under lease; by lease and block."""
        leased: LeasedSlots = {}
        for block_id, named in parse_ids(ids).items():
            block = self.state.blocks.get(block_id)
            if block is None:
                raise NotLeased(next(each for each in ids if parse_id(each).block_id == block_id))
            for lease, slots in block.by_lease(named).items():
                mask = bits.union(slots)
                if lease in self._renewed or mask & self._freed.get(lease, {}).get(block_id, 0):
                    raise Later
                leased.setdefault(lease, {})[block_id] = mask
        return leased

    def _need_bodies(self, leased: LeasedSlots) -> None:
        needed = {block_id for slots in leased.values() for block_id in slots}
        if not self._is_read(needed):
            raise Unread(needed)

    def _is_read(self, block_ids: Iterable[int]) -> bool:
        return all(self.state.blocks[block_id].body is not None for block_id in block_ids)

    def _free(self, lease: Lease, slots: dict[int, int]) -> None:
        """Takes the dict over."""
        freed = self._freed.get(lease)
        if freed is None:
            self._freed[lease] = slots
        else:
            add_slots(freed, slots)

    def _end(self, leased: LeasedSlots) -> None:
        for lease, slots in leased.items():
            self._free(lease, slots)
            add_slots(self._ended, slots)

    def remove(self, block: Block, slots: int) -> None:
        """End ready slots. The block may be one that is not in memory."""
        if slots:
            assert slots & (block.done | block.leased | self._ended.get(block.id, 0)) == 0, "only ready slots"
            if block.id not in self.state.blocks:
                self._visited[block.id] = block
            self._ended[block.id] = self._ended.get(block.id, 0) | slots

    def remove_leased(self, lease: Lease) -> None:
        """End what is left of a lease, whoever holds it; one that is renewed in this turn stays until the next."""
        if lease not in self._renewed:
            self._end({lease: lease.without(self._freed.get(lease, {}))})

    def unclaimed(self, block: Block) -> int:
        """The ready slots of a block that this turn leaves alone so far."""
        return block.ready & ~self._ended.get(block.id, 0)

    def unschedule(self, keys: list[bytes]) -> None:
        self._unscheduled.extend(keys)

    def write(self, items: list[Item]) -> list[Run]:
        return self._writer.add(items, sum(len(item.payload) for item in items))

    def _give_back(
        self, block: Block, slot: int, retry_at_ms: int = 0, *, rejected: bool = False, backoff: bool = False
    ) -> None:
        """End a hand-out: the item becomes ready again, now or later, or dies."""
        item = block.item(slot)
        attempts = item.attempts + 1
        reason = lifecycle.cause_of_death(
            self.settings, attempts=attempts, expire_at_ms=block.expire_at(slot), now_ms=self.now_ms, rejected=rejected
        )
        if reason:
            self._bury(block, slot, attempts, reason)
            return
        item = msgspec.structs.replace(
            item, attempts=attempts, created_at=block.created_at(slot), expire_at=block.expire_at(slot)
        )
        if backoff and not retry_at_ms:
            retry_at_ms = self.now_ms + lifecycle.backoff_ms(self.settings.retry_policy, attempts, self._rng)
        if retry_at_ms > self.now_ms:
            self._schedule(retry_at_ms, item)
        else:
            self._writer.add([item], len(item.payload))

    def _bury(self, block: Block, slot: int, attempts: int, reason: str) -> None:
        """Send an item to the dead queue; without one it is gone."""
        self.buried += 1
        if self.settings.dead_queue:
            item = lifecycle.dead_item(
                block.item(slot),
                queue_name=self.settings.queue_name,
                item_id=format_id(block.id, slot, attempts),
                reason=reason,
                attempts=attempts,
                created_at_ms=block.created_at(slot),
                now_ms=self.now_ms,
            )
            self._outbox[self._next()] = OutboxEntry(self.settings.dead_queue, item)

    def _schedule(self, due_at_ms: int, item: Item) -> str:
        key = records.scheduled_key(due_at_ms, self._next())
        if not item.created_at:
            item.created_at = self.now_ms
        if not item.expire_at and self.settings.expire_timeout_ms:
            item.expire_at = max(self.now_ms, due_at_ms) + self.settings.expire_timeout_ms
        self._scheduled[key] = item
        return records.scheduled_id(key)

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    # The commit.

    def batch(self) -> Batch | None:
        """What is to be written, or None if nothing changes."""
        self._writer.finish()
        written = self._writer.blocks
        puts: dict[bytes, bytes] = {}
        deletes: list[bytes] = []
        dropped = self._end_blocks(puts, deletes)
        self._write_leases(puts, deletes)
        puts.update((key, encode_item(item)) for key, item in self._scheduled.items())
        puts.update(
            (records.key(records.OUTBOX, sequence), records.encode(entry)) for sequence, entry in self._outbox.items()
        )
        puts.update(
            (records.key(records.RECEIVED, uid), sequence.to_bytes(8, "big"))
            for uid, sequence in self._received.items()
        )
        deletes.extend(self._unscheduled)
        deletes.extend(records.key(records.OUTBOX, sequence) for sequence in self._settled)
        if not (puts or deletes or written or dropped):
            return None
        self._summary = self._next_summary(dropped)
        self._batch = Batch(
            number=self.state.commit_number + 1,
            summary=records.encode(self._summary),
            blocks={block.id: data for block, data in written},
            dropped_blocks=[block.id for block in dropped],
            puts=puts,
            deletes=deletes,
        )
        return self._batch

    def _ended_blocks(self) -> Iterator[tuple[Block, int]]:
        for block_id, mask in self._ended.items():
            yield self.state.blocks.get(block_id) or self._visited[block_id], mask

    def _end_blocks(self, puts: dict[bytes, bytes], deletes: list[bytes]) -> list[Block]:
        """Records of blocks that end in part; returns those that end whole."""
        dropped = []
        for block, mask in self._ended_blocks():
            done = block.done | mask
            key = records.key(records.DONE, block.id)
            if done != block.everything:
                puts[key] = bits.to_bytes(done)
            else:
                dropped.append(block)
                if block.done:
                    deletes.append(key)
        return dropped

    def _write_leases(self, puts: dict[bytes, bytes], deletes: list[bytes]) -> None:
        """The record of a group may name slots that are done, but no block in which it has none left.

        So most completions do not touch it, and it never names a block that is gone.
        """
        freed_by_group: dict[LeaseGroup, dict[int, int]] = {group: {} for group in self._rewritten}
        for lease, freed in self._freed.items():
            self._left[lease] = lease.without(freed)
            add_slots(freed_by_group.setdefault(lease.group, {}), freed)
        for group, freed in freed_by_group.items():
            left = self._group_left[group] = group.without(freed)
            key = records.key(records.LEASE, group.id)
            if not left:
                deletes.append(key)
            elif group in self._rewritten or not freed.keys() <= left.keys():
                puts[key] = self._lease_records(group.leases.values())
        granted = [*self._granted, *self._regranted]
        if granted:
            self._group = LeaseGroup(min(lease.id for lease in granted))
            puts[records.key(records.LEASE, self._group.id)] = self._lease_records(granted)

    def _lease_records(self, leases: Iterable[Lease]) -> bytes:
        stored: records.LeaseRecords = []
        for lease in leases:
            slots = self._left.get(lease, lease.slots)
            if slots:
                named = [(block_id, self._count_of(block_id), bits.to_bytes(mask)) for block_id, mask in slots.items()]
                deadline_ms = self._renewed.get(lease, lease.deadline_ms)
                stored.append(records.LeaseRecord(lease.client_id, deadline_ms, named))
        return records.encode(stored)

    def _count_of(self, block_id: int) -> int:
        block = self.state.blocks.get(block_id)
        if block is None:
            block = next(block for block, _ in self._writer.blocks if block.id == block_id)
        return block.count

    def _next_summary(self, dropped: list[Block]) -> records.Summary:
        before = self.state.summary
        written = self._writer.blocks
        ended = list(self._ended_blocks())
        average = before.block_bytes // max(1, before.blocks)
        blocks = before.blocks + len(written) - len(dropped)
        block_bytes = before.block_bytes + sum(block.size for block, _ in written)
        block_bytes -= sum(block.size or average for block in dropped)
        summary = records.Summary(
            last_block_id=self._writer.last_block_id,
            head_block_id=min([self.state.head_block_id(), *self._returned]),
            sequence=self._sequence,
            items=before.items
            + sum(block.count for block, _ in written)
            - sum(mask.bit_count() for mask in self._ended.values()),
            blocks=blocks,
            block_bytes=max(0, block_bytes) if blocks else 0,
            scheduled=before.scheduled + len(self._scheduled) - len(self._unscheduled),
            outbox=before.outbox + len(self._outbox) - len(self._settled),
            ready_at_sum=before.ready_at_sum
            + sum(block.count * block.ready_at_ms for block, _ in written)
            - sum(mask.bit_count() * block.ready_at_ms for block, mask in ended),
        )
        assert min(summary.items, summary.scheduled, summary.outbox, summary.blocks) >= 0, "counters never drift"
        return summary

    def apply(self) -> None:
        """The commit landed: change the memory accordingly."""
        assert self._batch is not None, "nothing was committed"
        state = self.state
        state.commit_number = self._batch.number
        was_complete = state.complete
        state.summary = self._summary
        for lease, freed in self._freed.items():
            state.release(lease, freed, self._left[lease])
        for group, left in self._group_left.items():
            group.slots = left
        for lease in self._regranted:
            state.grant(lease, self._group, were_ready=False)
        for lease, deadline_ms in self._renewed.items():
            state.leases.renew(lease, deadline_ms)
        self._apply_ended()
        for block_id, mask in self._returned.items():
            state.make_ready(state.blocks[block_id], mask.bit_count())
        if was_complete:
            self._remember_written()
        for lease in self._granted:
            state.grant(lease, self._group)
        for key in self._unscheduled:
            state.due.pop(key, None)
        for key in self._scheduled:
            state.scheduled_at(records.due_at(key))
        state.received.update(self._received)

    def _apply_ended(self) -> None:
        freed: dict[int, int] = {}
        for slots in self._freed.values():
            add_slots(freed, slots)
        for block, mask in self._ended_blocks():
            self.state.finish(block, mask, were_ready=(mask & ~freed.get(block.id, 0)).bit_count())

    def _remember_written(self) -> None:
        """New blocks go into the window as long as it has room; those with leases always do."""
        leased = {block_id for lease in self._granted for block_id in lease.slots}
        for block, _ in self._writer.blocks:
            if not self.state.has_room() and block.id not in leased:
                return
            self.state.remember(block)
            self.state.window_end = block.id

    def abandoned(self) -> list[Lease]:
        """The leases of callers that have gone."""
        return [lease for reserve, lease in self._reserved if reserve.future.done()]

    def answer(self) -> None:
        """Tell everybody who is still there."""
        for request, result in self.answers:
            if not request.future.done():
                request.future.set_result(result)

    @property
    def requests(self) -> list[Request]:
        return [request for request, _ in self.answers]


_HANDLERS: dict[type[Request], Callable[[Turn, Any], Any]] = {
    Produce: Turn._produce,  # noqa: SLF001 - the table belongs to the class
    Complete: Turn._complete,  # noqa: SLF001
    Retry: Turn._retry,  # noqa: SLF001
    Renew: Turn._renew,  # noqa: SLF001
    Deliver: Turn._deliver,  # noqa: SLF001
    Settle: Turn._settle,  # noqa: SLF001
    Change: Turn._change,  # noqa: SLF001
}
