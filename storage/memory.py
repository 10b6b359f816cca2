"""The memory backend: a full citizen that keeps everything until its process ends, and nothing longer."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from querator.waist import (
    MAX_BLOCK_ID,
    Batch,
    Fenced,
    Health,
    Missing,
    Opened,
    Record,
    StorageError,
    StoredBlock,
)

_Key = TypeVar("_Key", int, bytes)

_SLACK = 64  # removed keys that a small map may carry before it is compacted


class _OrderedMap(Generic[_Key]):
    """A dictionary that can be scanned in the order of its keys.

    Removed keys stay in the list until they are the larger part of it, so that dropping the head of a long run costs
    no copy of the rest.
    """

    def __init__(self) -> None:
        self.values: dict[_Key, bytes] = {}
        self._keys: list[_Key] = []

    def put(self, key: _Key, value: bytes) -> None:
        if key not in self.values:
            self._insert(key)
        self.values[key] = value

    def _insert(self, key: _Key) -> None:
        keys = self._keys
        if not keys or key > keys[-1]:
            keys.append(key)
            return
        place = bisect_left(keys, key)
        if keys[place] != key:
            keys.insert(place, key)

    def remove(self, key: _Key) -> None:
        if self.values.pop(key, None) is None:
            return
        if len(self._keys) > 2 * len(self.values) + _SLACK:
            self._keys = [kept for kept in self._keys if kept in self.values]

    def scan(self, start: _Key, stop: _Key, *, limit: int, reverse: bool) -> list[tuple[_Key, bytes]]:
        found: list[tuple[_Key, bytes]] = []
        for key in self._places(start, stop, reverse=reverse):
            if len(found) >= limit:
                break
            value = self.values.get(key)
            if value is not None:
                found.append((key, value))
        return found

    def _places(self, start: _Key, stop: _Key, *, reverse: bool) -> Iterator[_Key]:
        first = bisect_left(self._keys, start)
        last = bisect_left(self._keys, stop)
        places = range(last - 1, first - 1, -1) if reverse else range(first, last)
        return map(self._keys.__getitem__, places)


class _Content:
    """All that is stored of one partition."""

    def __init__(self) -> None:
        self.epoch = 0
        self.number = 0
        self.summary = b""
        self.blocks: _OrderedMap[int] = _OrderedMap()
        self.records: _OrderedMap[bytes] = _OrderedMap()

    def write(self, batch: Batch) -> None:
        self._check(batch)
        for block_id in batch.dropped_blocks:
            self.blocks.remove(block_id)
        for key in batch.deletes:
            self.records.remove(key)
        for block_id, data in batch.blocks.items():
            self.blocks.put(block_id, data)
        for key, value in batch.puts.items():
            self.records.put(key, value)
        self.number = batch.number
        self.summary = batch.summary

    def _check(self, batch: Batch) -> None:
        if batch.number != self.number + 1:
            raise StorageError(f"commit {batch.number} does not follow commit {self.number}")
        for block_id in batch.blocks:
            if not 0 < block_id <= MAX_BLOCK_ID:
                raise StorageError(f"{block_id} is not a block id")
            if block_id in self.blocks.values and block_id not in batch.dropped_blocks:
                raise StorageError(f"block {block_id} exists already")


class MemoryPartition:
    def __init__(self, backend: MemoryBackend, partition: int) -> None:
        self._backend = backend
        self._partition = partition
        self._epoch: int | None = None
        self._closed = False

    async def open(self, epoch: int) -> Opened:
        content = self._content()
        if content.epoch > epoch:
            raise Fenced(f"partition {self._partition} was opened with epoch {content.epoch}, which is above {epoch}")
        content.epoch = self._epoch = epoch
        return Opened(content.number, content.summary)

    async def commit(self, batch: Batch) -> None:
        content = self._content()
        if self._epoch is None:
            raise StorageError(f"partition {self._partition} is not open")
        if content.epoch != self._epoch:
            raise Fenced(f"partition {self._partition} has epoch {content.epoch}, and was opened with {self._epoch}")
        content.write(batch)
        # Others answer on a later pass of the loop, and callers gather the next batch meanwhile: so here.
        await asyncio.sleep(0)

    async def scan_blocks(self, start: int, stop: int, limit: int, reverse: bool = False) -> list[StoredBlock]:
        found = self._content().blocks.scan(start, stop, limit=limit, reverse=reverse)
        return [StoredBlock(block_id, data) for block_id, data in found]

    async def scan(self, start: bytes, stop: bytes, limit: int, reverse: bool = False) -> list[Record]:
        found = self._content().records.scan(start, stop, limit=limit, reverse=reverse)
        return [Record(key, value) for key, value in found]

    async def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        values = self._content().records.values
        return {key: values[key] for key in keys if key in values}

    async def close(self) -> None:
        self._closed = True

    def _content(self) -> _Content:
        if self._closed:
            raise StorageError(f"partition {self._partition} is closed")
        return self._backend.content(self._partition)


class MemoryBackend:
    driver = "memory"

    def __init__(self, name: str = "memory", affinity: float = 1.0) -> None:
        self.name = name
        self.affinity = affinity
        self._contents: dict[int, _Content] = {}
        self._closed = False

    async def create(self, partition: int) -> None:
        self._check_open()
        self._contents.setdefault(partition, _Content())

    async def drop(self, partition: int) -> None:
        self._check_open()
        self._contents.pop(partition, None)

    async def list(self) -> list[int]:
        self._check_open()
        return sorted(self._contents)

    def partition(self, partition: int) -> MemoryPartition:
        return MemoryPartition(self, partition)

    async def health(self) -> Health:
        return Health(ok=not self._closed, details="closed" if self._closed else "")

    async def close(self) -> None:
        self._closed = True
        self._contents.clear()

    def content(self, partition: int) -> _Content:
        self._check_open()
        try:
            return self._contents[partition]
        except KeyError:
            raise Missing(f"backend '{self.name}' has no partition {partition}") from None

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(f"backend '{self.name}' is closed")
