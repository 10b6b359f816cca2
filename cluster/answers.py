"""What this instance answers when others ask it: from the logical queues here, and from nowhere else.

So a call goes over one other instance at most. What has moved on meanwhile is told as such, and tried again by whoever
asked first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from cluster.host import Host
from cluster.messages import Hungry, Message, Ready
from cluster.reserving import Reserving
from querator import cold_path
from querator.clock import Timer
from querator.errors import Moved, NoSuchMethod, RetryRequest
from querator.inspection import ItemView
from querator.items import Item
from querator.logical_queue import LogicalQueue
from querator.queues import LogicalQueueStats
from querator.requests import Produced, Reservation, RetryItem, Scheduled
from querator.waist import StorageError

FROZEN_MS = 60_000  # after which a queue takes requests again by itself: whoever wanted to delete it may have died


class Answers:
    def __init__(self, host: Host, reserving: Reserving) -> None:
        self._host = host
        self._reserving = reserving
        self._thawing: dict[str, Timer] = {}  # by queue
        self._calls: dict[str, Callable[..., Awaitable[Any]]] = {
            "produce": self.produce,
            "reserve": self.reserve,
            "complete": self.complete,
            "retry": self.retry,
            "renew": self.renew,
            "take_back": self.take_back,
            "deliver": self.deliver,
            "stats": self.stats,
            "is_open": self.is_open,
            "create_partition": self.create_partition,
            "freeze": self.freeze,
            "thaw": self.thaw,
            "clear": self.clear,
            "reload": self.reload,
            "list_items": self.list_items,
            "list_scheduled": self.list_scheduled,
            "import_items": self.import_items,
            "delete_items": self.delete_items,
        }

    def ask(self, instance: str, call: str, arguments: tuple[Any, ...]) -> Awaitable[Any]:
        if call not in self._calls:
            raise NoSuchMethod(f"{call}, which instance '{instance}' asks for")
        return self._calls[call](*arguments)

    def hear(self, instance: str, message: Message) -> None:
        if isinstance(message, Hungry):
            self._reserving.hear_hungry(instance, message)
        elif isinstance(message, Ready):
            self._reserving.hear_ready(instance, message)

    # The hot calls.

    def produce(
        self, queue_name: str, items: list[Item], scheduled: list[Scheduled], size: int, timeout_ms: int
    ) -> asyncio.Future[Produced]:
        return self._any(queue_name).produce(items, scheduled, size, timeout_ms)

    def reserve(
        self, queue_name: str, batch_size: int, client_id: str, timeout_ms: int, lease_timeout_ms: int
    ) -> Awaitable[Reservation | None]:
        reserved = self._reserving.reserve_now(queue_name, batch_size, client_id, timeout_ms, lease_timeout_ms)
        return reserved if reserved is not None else _nothing()

    def complete(self, queue_name: str, partition: int, ids: list[str], timeout_ms: int) -> asyncio.Future[None]:
        return self._host.owner(queue_name, partition).complete(partition, ids, timeout_ms)

    def retry(self, queue_name: str, partition: int, items: list[RetryItem], timeout_ms: int) -> asyncio.Future[None]:
        return self._host.owner(queue_name, partition).retry(partition, items, timeout_ms)

    def renew(
        self, queue_name: str, partition: int, ids: list[str], timeout_ms: int, lease_timeout_ms: int
    ) -> asyncio.Future[int]:
        return self._host.owner(queue_name, partition).renew(partition, ids, timeout_ms, lease_timeout_ms)

    async def take_back(self, queue_name: str, partition: int, ids: list[str]) -> None:
        """What was leased for a caller that has gone."""
        self._host.owner(queue_name, partition).take_back(partition, ids)

    def deliver(
        self, queue_name: str, partition: int, source_uid: int, entries: list[tuple[int, Item]]
    ) -> asyncio.Future[None]:
        return self._host.owner(queue_name, partition).deliver(partition, source_uid, entries)

    # The rare ones.

    async def stats(self, queue_name: str) -> list[LogicalQueueStats]:
        return [logical_queue.stats() for logical_queue in self._here(queue_name)]

    async def is_open(self, queue_name: str, epoch: int) -> bool:
        return self._host.is_open(queue_name, epoch)

    async def create_partition(self, backend: str, uid: int) -> None:
        if backend not in self._host.backends:
            raise RetryRequest("backend is missing", f"this instance does not reach '{backend}'")
        try:
            await self._host.backends[backend].create(uid)
        except StorageError as error:
            raise RetryRequest("backend is failing", f"'{backend}' takes no partitions now: {error}") from error

    async def freeze(self, queue_name: str) -> list[LogicalQueueStats]:
        """Take no more requests; returns what is there then."""
        logical_queues = self._here(queue_name)
        self._thaw_later(queue_name)
        await asyncio.gather(*(logical_queue.freeze() for logical_queue in logical_queues))
        return [logical_queue.stats() for logical_queue in logical_queues]

    def _thaw_later(self, queue_name: str) -> None:
        def thaw() -> None:
            del self._thawing[queue_name]
            for logical_queue in self._host.logical_queues(queue_name):
                logical_queue.thaw()

        if (timer := self._thawing.pop(queue_name, None)) is not None:
            timer.cancel()
        clock = self._host.clock
        self._thawing[queue_name] = clock.call_at(clock.now_ms() + FROZEN_MS, thaw)

    async def thaw(self, queue_name: str) -> None:
        if (timer := self._thawing.pop(queue_name, None)) is not None:
            timer.cancel()
        for logical_queue in self._here(queue_name):
            logical_queue.thaw()

    async def clear(self, queue_name: str, items: bool, scheduled: bool, destructive: bool) -> None:
        for logical_queue in self._here(queue_name):
            await cold_path.clear(logical_queue, items=items, scheduled=scheduled, destructive=destructive)

    async def reload(self, queue_name: str) -> None:
        for logical_queue in self._here(queue_name):
            await cold_path.reload(logical_queue)

    async def list_items(self, queue_name: str, partition: int, pivot: str, limit: int) -> list[ItemView]:
        return await cold_path.list_items(self._host.owner(queue_name, partition), partition, pivot, limit)

    async def list_scheduled(self, queue_name: str, partition: int, pivot: str, limit: int) -> list[ItemView]:
        return await cold_path.list_scheduled(self._host.owner(queue_name, partition), partition, pivot, limit)

    async def import_items(self, queue_name: str, partition: int, items: list[Item]) -> list[ItemView]:
        return await cold_path.import_items(self._host.owner(queue_name, partition), partition, items)

    async def delete_items(self, queue_name: str, partition: int, ids: list[str]) -> None:
        await cold_path.delete_items(self._host.owner(queue_name, partition), partition, ids)

    def _here(self, queue_name: str) -> list[LogicalQueue]:
        logical_queues = self._host.logical_queues(queue_name)
        if not logical_queues:
            raise Moved(queue_name)
        return logical_queues

    def _any(self, queue_name: str) -> LogicalQueue:
        logical_queues = self._here(queue_name)
        return next((each for each in logical_queues if each.works), logical_queues[0])


async def _nothing() -> None:
    """The answer to a reserve that finds nothing."""
