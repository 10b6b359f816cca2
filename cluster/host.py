"""The host: the logical queues that run on this instance, and the partitions that they own."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping

import msgspec
import structlog

from cluster.burial import Burial
from cluster.catalog import Catalog
from querator.clock import Clock
from querator.errors import NoSuchQueue, RequestFailed, RetryRequest
from querator.limits import Limits
from querator.logical_queue import LogicalQueue
from querator.member import Status
from querator.observer import Observer
from querator.partition import PartitionState
from querator.queues import PartitionPlace, Queue
from querator.relay import Entries, Relay
from querator.waist import Backend, StorageError

_log = structlog.get_logger(__name__)

_PATIENCE_S = 10.0  # with backends that do not answer


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
        self.backends = dict(backends)  # may change while running
        self.burial = Burial(catalog, self.backends, clock)
        self.clock = clock
        self.observer = observer if observer is not None else Observer()
        self._rng = rng
        self._limits = limits
        self._logical_queues: dict[str, list[LogicalQueue]] = {}
        self._openings: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """A backend that is down now delays this by a few seconds at most: what is there is opened as soon as it can be."""
        await self.catalog.load()
        for queue in self.catalog.all():
            self._check_backends(queue)
        burying = asyncio.create_task(self._begin_to_bury())
        self._tasks.append(burying)
        openings = [await self._begin_to_open(queue) for queue in self.catalog.all()]
        await _wait_for(burying, *openings)
        self._tasks.append(asyncio.create_task(self.burial.run()))

    async def _begin_to_bury(self) -> None:
        await self.burial.bury()

    def _check_backends(self, queue: Queue) -> None:
        for place in queue.partitions:
            if place.backend not in self.backends:
                details = f"'{queue.name}' has a partition on '{place.backend}', which is not in the configuration"
                raise RequestFailed("backend is missing", details)

    async def open(self, queue: Queue) -> None:
        """Become the owner of a queue's partitions. One that cannot be opened now is tried again until it can."""
        self._check_backends(queue)
        await _wait_for(await self._begin_to_open(queue))

    async def _begin_to_open(self, queue: Queue) -> asyncio.Task[None]:
        """Open a queue's partitions under epochs that no earlier owner had."""
        partitions = tuple(msgspec.structs.replace(place, epoch=place.epoch + 1) for place in queue.partitions)
        queue = msgspec.structs.replace(queue, partitions=partitions)
        await self.catalog.replace(queue)
        states = [
            PartitionState(place, self.backends[place.backend].partition(place.uid), self._limits)
            for place in queue.partitions
        ]
        rng = random.Random(self._rng.getrandbits(64))  # noqa: S311 - jitter, not secrets
        logical_queue = LogicalQueue(
            queue, states, clock=self.clock, rng=rng, limits=self._limits, observer=self.observer
        )
        self._logical_queues[queue.name] = [logical_queue]
        opening = asyncio.create_task(self._open(logical_queue))
        self._openings[queue.name] = opening
        opening.add_done_callback(lambda task: self._opened(queue.name, task))
        return opening

    async def _open(self, logical_queue: LogicalQueue) -> None:
        for place in logical_queue.queue.partitions:
            if self.backends[place.backend].driver == "memory":  # it has lost everything when it stopped
                await self._create_again(place)
        await logical_queue.open()
        logical_queue.spawn(Relay(logical_queue, self._deliver).run())

    async def _create_again(self, place: PartitionPlace) -> None:
        try:
            await self.backends[place.backend].create(place.uid)
        except StorageError as error:
            _log.warning("partition cannot be created now", partition_uid=place.uid, error=str(error))

    def _opened(self, queue_name: str, task: asyncio.Task[None]) -> None:
        if self._openings.get(queue_name) is task:
            del self._openings[queue_name]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("queue cannot be opened", queue=queue_name, exc_info=error)

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

    def set_backends(self, backends: Mapping[str, Backend], affinities: Mapping[str, float]) -> None:
        """Let these be all backends. Those that go must have no partitions."""
        for name, affinity in affinities.items():
            backends[name].affinity = affinity
        self.backends.clear()
        self.backends.update(backends)

    def update_limits(self, limits: Limits) -> None:
        """They hold at once, for what is open and for what comes."""
        self._limits = limits
        for logical_queues in self._logical_queues.values():
            for logical_queue in logical_queues:
                logical_queue.update(logical_queue.queue, limits)
                for member in logical_queue.members.values():
                    member.state.limits = limits

    def stop_waiting(self) -> None:
        for logical_queues in self._logical_queues.values():
            for logical_queue in logical_queues:
                logical_queue.stop_waiting()

    async def shut(self, queue_name: str) -> None:
        """Close a queue's logical queues here."""
        if (opening := self._openings.get(queue_name)) is not None:
            await _cancel(opening)
        await asyncio.gather(*(each.close() for each in self._logical_queues.pop(queue_name, [])))

    async def close(self) -> None:
        """Close everything. Waiting reserves are answered, what runs is finished."""
        await _cancel(*self._tasks)
        self._tasks.clear()
        await asyncio.gather(*(self.shut(queue_name) for queue_name in list(self._logical_queues)))

    async def _deliver(self, target: str, source_uid: int, entries: Entries) -> None:
        """The same source always meets the same partition, which knows what it took from there before."""
        queue = self.catalog.find(target)
        if queue is None or target not in self._logical_queues:
            raise RetryRequest("queue is not open here", f"'{target}' is deleted, or not yet open")
        partition = queue.partitions[source_uid % len(queue.partitions)].number
        await self.owner(target, partition).deliver(partition, source_uid, entries)


async def _wait_for(*tasks: asyncio.Task[None]) -> None:
    """Wait until they are done, and raise what one of them raised; but not for ever: the rest goes on by itself."""
    done, _ = await asyncio.wait(tasks, timeout=_PATIENCE_S)
    for task in done:
        task.result()


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
