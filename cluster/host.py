"""The host: the logical queues that run on this instance, and the partitions that they own."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping

import msgspec
import structlog

from cluster.catalog import Catalog
from querator.clock import Clock
from querator.errors import NoSuchQueue, RequestFailed, RetryRequest
from querator.limits import Limits
from querator.logical_queue import LogicalQueue
from querator.member import Status
from querator.observer import Observer
from querator.partition import PartitionState
from querator.queues import Queue
from querator.relay import Entries, Relay
from querator.waist import Backend, StorageError

_log = structlog.get_logger(__name__)


class Host:
    """Opens what the catalog has, and follows its changes."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        backends: Mapping[str, Backend],
        clock: Clock,
        rng: random.Random,
        limits: Limits,
        observer: Observer | None = None,
    ) -> None:
        self.catalog = catalog
        self.backends = backends
        self.clock = clock
        self.observer = observer if observer is not None else Observer()
        self._rng = rng
        self._limits = limits
        self._logical_queues: dict[str, list[LogicalQueue]] = {}

    async def start(self) -> None:
        await self.catalog.load()
        await self.bury_doomed()
        for queue in self.catalog.all():
            await self.open(queue)

    async def open(self, queue: Queue) -> None:
        """Become the owner of a queue's partitions, under epochs that no earlier owner had."""
        for place in queue.partitions:
            if place.backend not in self.backends:
                details = f"'{queue.name}' has a partition on '{place.backend}', which is not in the configuration"
                raise RequestFailed("backend is missing", details)
        partitions = tuple(msgspec.structs.replace(place, epoch=place.epoch + 1) for place in queue.partitions)
        queue = msgspec.structs.replace(queue, partitions=partitions)
        await self.catalog.replace(queue)
        for place in queue.partitions:
            if self.backends[place.backend].driver == "memory":  # it has lost everything when it stopped
                await self.backends[place.backend].create(place.uid)
        states = [
            PartitionState(place, self.backends[place.backend].partition(place.uid), self._limits)
            for place in queue.partitions
        ]
        rng = random.Random(self._rng.getrandbits(64))  # noqa: S311 - jitter, not secrets
        logical_queue = LogicalQueue(
            queue, states, clock=self.clock, rng=rng, limits=self._limits, observer=self.observer
        )
        await logical_queue.open()
        logical_queue.spawn(Relay(logical_queue, self._deliver).run())
        self._logical_queues[queue.name] = [logical_queue]

    def logical_queues(self, queue_name: str) -> list[LogicalQueue]:
        """Those of one queue that run here."""
        found = self._logical_queues.get(queue_name)
        if found is None:
            raise NoSuchQueue(queue_name)
        return found

    def owner(self, queue_name: str, partition: int) -> LogicalQueue:
        """The logical queue that owns a partition; any of the queue's if none does, which then says so."""
        logical_queues = self.logical_queues(queue_name)
        for logical_queue in logical_queues:
            if partition in logical_queue.members:
                return logical_queue
        return logical_queues[0]

    def failing(self) -> Counter[str]:
        """How many partitions cannot be used, by backend."""
        stats = [each.stats() for logical_queues in self._logical_queues.values() for each in logical_queues]
        partitions = [partition for each in stats for partition in each.partitions]
        return Counter(partition.backend for partition in partitions if partition.state != Status.AVAILABLE)

    def update(self, queue: Queue) -> None:
        for logical_queue in self.logical_queues(queue.name):
            logical_queue.update(queue)

    def stop_waiting(self) -> None:
        for logical_queues in self._logical_queues.values():
            for logical_queue in logical_queues:
                logical_queue.stop_waiting()

    async def shut(self, queue_name: str) -> None:
        """Close a queue's logical queues here."""
        await asyncio.gather(*(each.close() for each in self._logical_queues.pop(queue_name, [])))

    async def close(self) -> None:
        """Close everything. Waiting reserves are answered, what runs is finished."""
        await asyncio.gather(*(self.shut(queue_name) for queue_name in list(self._logical_queues)))

    async def bury_doomed(self) -> None:
        """Drop the partitions that no queue has any more, or never had."""
        for uid, backend_name in await self.catalog.doomed():
            backend = self.backends.get(backend_name)
            if backend is None:
                _log.warning("doomed partition is on an unknown backend", partition_uid=uid, backend=backend_name)
                continue
            try:
                await backend.drop(uid)
            except StorageError as error:
                _log.warning("partition cannot be dropped now", partition_uid=uid, error=str(error))
            else:
                await self.catalog.buried(uid)

    async def _deliver(self, target: str, source_uid: int, entries: Entries) -> None:
        """The same source always meets the same partition, which knows what it took from there before."""
        queue = self.catalog.find(target)
        if queue is None or target not in self._logical_queues:
            raise RetryRequest("queue is not open here", f"'{target}' is deleted, or not yet open")
        partition = queue.partitions[source_uid % len(queue.partitions)].number
        await self.owner(target, partition).deliver(partition, source_uid, entries)
