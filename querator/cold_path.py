"""The rare operations on a logical queue: looking into partitions, importing, deleting, clearing, reloading."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from querator import bits, records
from querator.blocks import Block, read_block, ready_at_ms
from querator.errors import InvalidRequest, PartitionFailing
from querator.inspection import ItemView
from querator.items import NEVER_MS, Item, decode_item, format_id, parse_id
from querator.logical_queue import LogicalQueue
from querator.member import Member
from querator.requests import Change, Later
from querator.turn import Turn
from querator.waist import MAX_BLOCK_ID, StorageError, StoredBlock

_BLOCKS_PER_READ = 16
_CLEARED_AT_ONCE = 256  # blocks, leases
_SCHEDULED_PER_READ = 1000

T = TypeVar("T")


async def list_items(logical_queue: LogicalQueue, partition: int, pivot: str, limit: int) -> list[ItemView]:
    """Ready and leased items in the order of ids, from the pivot on."""
    member = logical_queue.member(partition)
    first = parse_id(pivot) if pivot else None
    start = first.block_id if first else 0
    views: list[ItemView] = []
    while len(views) < limit:
        with _failing(logical_queue, partition):
            page = await member.state.stored.scan_blocks(start, MAX_BLOCK_ID, _BLOCKS_PER_READ)
        if not page:
            break
        for stored in page:
            views.extend(view for view in _views(member, stored) if view.id >= pivot)
        start = page[-1].id + 1
    return views[:limit]


def _views(member: Member, stored: StoredBlock) -> Iterator[ItemView]:
    block = _known(member, stored)
    if block is None:
        return
    for slot in bits.slots(block.everything & ~block.done):
        item = block.item(slot)
        lease = block.owner(slot)
        yield ItemView(
            id=format_id(block.id, slot, item.attempts + 1),
            item=item,
            created_at_ms=block.created_at(slot),
            expire_at_ms=_instant(block.expire_at(slot)),
            is_leased=lease is not None,
            lease_deadline_ms=lease.deadline_ms if lease is not None else 0,
        )


def _instant(expire_at_ms: int) -> int:
    return 0 if expire_at_ms == NEVER_MS else expire_at_ms


def _known(member: Member, stored: StoredBlock) -> Block | None:
    """The block with what memory knows of it; None if it has gone since it was read."""
    state = member.state
    block = state.blocks.get(stored.id)
    if block is not None and block.body is not None:
        return block
    if block is None and stored.id <= state.window_end:
        return None
    read = read_block(stored.id, stored.data, block.done if block else state.done.get(stored.id, 0))
    if block is not None:
        read.leased, read.owners = block.leased, block.owners
    return read


async def list_scheduled(logical_queue: LogicalQueue, partition: int, pivot: str, limit: int) -> list[ItemView]:
    """Scheduled items in the order of their due times, from the pivot on."""
    start, stop = records.all_of(records.SCHEDULED)
    if pivot:
        start = _scheduled_key(pivot)
    member = logical_queue.member(partition)
    with _failing(logical_queue, partition):
        page = await member.state.stored.scan(start, stop, limit)
    return [_scheduled_view(key, decode_item(value)) for key, value in page]


def _scheduled_view(key: bytes, item: Item) -> ItemView:
    return ItemView(
        id=records.scheduled_id(key),
        item=item,
        created_at_ms=item.created_at,
        expire_at_ms=_instant(item.expire_at),
        enqueue_at_ms=records.due_at(key),
    )


def _scheduled_key(pivot: str) -> bytes:
    try:
        return records.SCHEDULED + bytes.fromhex(pivot)
    except ValueError:
        raise InvalidRequest("pivot is invalid", f"'{pivot[:64]}' is not the id of a scheduled item") from None


async def import_items(logical_queue: LogicalQueue, partition: int, items: list[Item]) -> list[ItemView]:
    """Add items with the history that they bring along."""

    def plan(turn: Turn) -> list[ItemView]:
        return [
            ItemView(
                id=item_id,
                item=item,
                created_at_ms=item.created_at or ready_at_ms(run.block_id),
                expire_at_ms=_instant(item.expire_at or turn.expire_at_ms),
            )
            for run in turn.write(items)
            for item_id, item in zip(run.ids(), run.items, strict=True)
        ]

    return await change(logical_queue, partition, plan)


async def delete_items(logical_queue: LogicalQueue, partition: int, ids: Sequence[str]) -> None:
    """Remove items that are not leased. All or nothing."""
    member = logical_queue.member(partition)
    slots: dict[int, dict[int, str]] = {}
    for item_id in ids:
        place = parse_id(item_id)
        slots.setdefault(place.block_id, {})[place.slot] = item_id
    async with member.rare:
        with _failing(logical_queue, partition):
            visited = await _visit(member, slots)

        def plan(turn: Turn) -> None:
            doomed = [_doomed(turn, visited, block_id, named) for block_id, named in slots.items()]
            for block, mask in doomed:
                turn.remove(block, mask)

        await change(logical_queue, partition, plan)


async def _visit(member: Member, block_ids: dict[int, dict[int, str]]) -> dict[int, Block]:
    """Read blocks that are not in memory."""
    state = member.state
    visited = {}
    for block_id in block_ids:
        if block_id > state.window_end and block_id not in state.blocks:
            for stored in await state.stored.scan_blocks(block_id, block_id + 1, 1):
                visited[block_id] = read_block(block_id, stored.data, state.done.get(block_id, 0))
    return visited


def _doomed(turn: Turn, visited: dict[int, Block], block_id: int, named: dict[int, str]) -> tuple[Block, int]:
    state = turn.state
    block = state.blocks.get(block_id)
    if block is None and block_id > state.window_end:
        block = visited.get(block_id)
    mask = bits.union(named)
    for slot, item_id in named.items():
        if block is None or slot >= block.count or block.done >> slot & 1:
            raise InvalidRequest("item does not exist", f"no item has the id '{item_id}'")
        if block.owner(slot) is not None:
            raise InvalidRequest("item is leased", f"'{item_id}' cannot be deleted while it is under lease")
    assert block is not None
    if mask & ~turn.unclaimed(block):
        raise Later
    return block, mask


async def clear(logical_queue: LogicalQueue, *, items: bool, scheduled: bool, destructive: bool) -> None:
    """Remove what is there now: ready items, scheduled ones, and with ``destructive`` also leased ones."""
    for member in logical_queue.members.values():
        async with member.rare:
            with _failing(logical_queue, member.number):
                await _clear(logical_queue, member, items=items, scheduled=scheduled, destructive=destructive)


async def _clear(
    logical_queue: LogicalQueue, member: Member, *, items: bool, scheduled: bool, destructive: bool
) -> None:
    if scheduled:
        await _clear_scheduled(logical_queue, member)
    if items:
        await _clear_ready(logical_queue, member)
    if items and destructive:
        await _clear_leased(logical_queue, member)


async def _clear_ready(logical_queue: LogicalQueue, member: Member) -> None:
    state = member.state
    last_block_id = state.summary.last_block_id

    def plan(turn: Turn) -> bool:
        blocks = [block for block in islice(state.window.values(), _CLEARED_AT_ONCE) if block.id <= last_block_id]
        for block in blocks:
            turn.remove(block, turn.unclaimed(block))
        return bool(blocks)

    while await change(logical_queue, member.number, plan) or state.window_end < last_block_id:
        while not state.window and state.window_end < last_block_id:
            member.news.clear()
            logical_queue.wake()
            await member.news.wait()


async def _clear_leased(logical_queue: LogicalQueue, member: Member) -> None:
    last_sequence = member.state.summary.sequence

    def plan(turn: Turn) -> bool:
        granted_before = (lease for lease in turn.state.leases if lease.id <= last_sequence)
        leases = list(islice(granted_before, _CLEARED_AT_ONCE))
        for lease in leases:
            turn.remove_leased(lease)
        return bool(leases)

    while await change(logical_queue, member.number, plan):
        pass


async def _clear_scheduled(logical_queue: LogicalQueue, member: Member) -> None:
    """What has come due meanwhile is not scheduled any more, and stays."""
    start, stop = records.all_of(records.SCHEDULED)
    while page := await member.state.stored.scan(start, stop, _SCHEDULED_PER_READ):
        keys = [record.key for record in page]
        await change(
            logical_queue,
            member.number,
            lambda turn, keys=keys: turn.unschedule([key for key in keys if records.due_at(key) > turn.now_ms]),  # type: ignore[misc]
        )
        start = keys[-1] + b"\x00"


async def reload(logical_queue: LogicalQueue) -> None:
    """Read all partitions anew from storage."""
    for member in logical_queue.members.values():
        async with member.rare:
            await logical_queue.rebuild(member)


@contextmanager
def _failing(logical_queue: LogicalQueue, partition: int) -> Iterator[None]:
    """What callers are told when storage cannot be read."""
    try:
        yield
    except StorageError as error:
        raise PartitionFailing(logical_queue.queue.name, partition) from error


async def change(logical_queue: LogicalQueue, partition: int, plan: Callable[[Turn], T]) -> T:
    """Run a function within a turn; its result comes when what it changed is durable."""
    result: T = await logical_queue.request(partition, lambda future: Change(future, partition, plan))
    return result
