"""Cuts the items of a turn into new blocks."""

from __future__ import annotations

from querator.blocks import Block, next_block_id
from querator.items import BlockBody, Item, encode_block
from querator.limits import Limits
from querator.requests import Run


class BlockWriter:
    """Items that are added one after the other lie one after the other, whichever requests they came in."""

    def __init__(self, *, now_ms: int, last_block_id: int, expire_at_ms: int, limits: Limits) -> None:
        self.last_block_id = last_block_id
        self.blocks: list[tuple[Block, bytes]] = []  # finished, with what is stored of them
        self._now_ms = now_ms
        self._expire_at_ms = expire_at_ms
        self._limits = limits
        self._items: list[Item] = []
        self._size = 0

    def add(self, items: list[Item], size: int) -> list[Run]:
        """Where the items will be; ``size`` is of their payloads, in bytes."""
        if len(self._items) + len(items) <= self._limits.block_items and self._size + size <= self._limits.block_bytes:
            return [self._append(items, size)]
        runs = []
        while items:
            too_large = self._size + len(items[0].payload) > self._limits.block_bytes
            if too_large or len(self._items) >= self._limits.block_items:
                self.finish()
            part, part_size = self._fitting(items)
            runs.append(self._append(part, part_size))
            items = items[len(part) :]
        return runs

    def _fitting(self, items: list[Item]) -> tuple[list[Item], int]:
        """As many as the open block takes, and at least one, which it takes alone if it must."""
        room = self._limits.block_bytes - self._size
        size = count = 0
        for item in items[: self._limits.block_items - len(self._items)]:
            if count and size + len(item.payload) > room:
                break
            size += len(item.payload)
            count += 1
        return items[:count], size

    def _append(self, items: list[Item], size: int) -> Run:
        if not self._items:
            self.last_block_id = next_block_id(self._now_ms, self.last_block_id)
        run = Run(self.last_block_id, len(self._items), items)
        self._items.extend(items)
        self._size += size
        return run

    def finish(self) -> None:
        """Close the open block."""
        if not self._items:
            return
        body = BlockBody(self._expire_at_ms, self._items)
        data = encode_block(body)
        block = Block(self.last_block_id, len(self._items))
        block.fill(body, len(data))
        self.blocks.append((block, data))
        self._items = []
        self._size = 0
