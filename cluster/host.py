"""The host: the logical queues that run on this instance, brought in line with what is assigned to it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import structlog

from cluster.assignment import LogicalQueuePlace
from cluster.burial import Burial
from cluster.catalog import Catalog
from querator.clock import Clock
from querator.errors import Moved
from querator.limits import Limits
from querator.logical_queue import LogicalQueue
from querator.member import Status
from querator.observer import Observer
from querator.partition import PartitionState
from querator.queues import PartitionPlace, Queue
from querator.relay import Deliver, Relay
from querator.waist import Backend, StorageError

_AGAIN_MS = 1_000  # after something went wrong that nobody foresaw

_log = structlog.get_logger(__name__)


class _Running(NamedTuple):
    place: LogicalQueuePlace
    logical_queue: LogicalQueue
    opening: asyncio.Task[None]


class Host:
    """`follow` brings a queue's logical queues here in line with its assignment; ``changed`` is told when they are.

    ``deliver`` takes what the relays send to other queues, wherever those are.
    """

    def __init__(
        self,
        *,
        me: str,
        catalog: Catalog,
        backends: Mapping[str, Backend],
        clock: Clock,
        rng: random.Random,
        limits: Limits,
        observer: Observer | None = None,
    ) -> None:
        self.me = me
        self.catalog = catalog
        self.backends = dict(backends)  # may change while running
        self.burial = Burial(catalog, self.backends, clock)
        self.clock = clock
        self.observer = observer if observer is not None else Observer()
        self.deliver: Deliver
        self.changed: Callable[[str], None] = lambda _: None
        self._rng = rng
        self._limits = limits
        self._running: dict[str, dict[int, _Running]] = {}
        self._bringing: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    # What is assigned.

    def follow(self, queue_name: str) -> None:
        """Something about the queue has changed."""
        queue = self.catalog.find(queue_name)
        for running in self._running.get(queue_name, {}).values():
            if queue is not None and running.logical_queue.queue != queue:
                running.logical_queue.update(queue)
        if not self._closed and not self._is_in_line(queue_name) and queue_name not in self._bringing:
            task = asyncio.create_task(self._bring(queue_name), name=f"bring {queue_name}")
            self._bringing[queue_name] = task
            task.add_done_callback(lambda done: self._brought(queue_name, done))

    def _wanted(self, queue_name: str) -> dict[int, LogicalQueuePlace]:
        if self.catalog.find(queue_name) is None:
            return {}
        return {place.number: place for place in self.catalog.assignment(queue_name).owned_by(self.me)}

    def _is_in_line(self, queue_name: str) -> bool:
        here = {number: running.place for number, running in self._running.get(queue_name, {}).items()}
        return here == self._wanted(queue_name)

    async def _bring(self, queue_name: str) -> None:
        """Let go of what is not ours any more, then open what is: a partition is never open twice here."""
        while not self._closed and not self._is_in_line(queue_name):
            wanted = self._wanted(queue_name)
            here = self._running.setdefault(queue_name, {})
            leaving = [number for number, running in here.items() if wanted.get(number) != running.place]
            await asyncio.gather(*(self._shut(queue_name, here.pop(number)) for number in leaving))
            queue = self.catalog.find(queue_name)
            if queue is None or wanted != self._wanted(queue_name) or self._closed:
                continue
            for number, place in wanted.items():
                if number not in here:
                    here[number] = self._begin_to_open(queue, place)
            self.changed(queue_name)
        if not self._running.get(queue_name):
            self._running.pop(queue_name, None)
        self.changed(queue_name)

    def _brought(self, queue_name: str, task: asyncio.Task[None]) -> None:
        del self._bringing[queue_name]
        if _tell_error(queue_name, task):
            self.clock.call_at(self.clock.now_ms() + _AGAIN_MS, lambda: self.follow(queue_name))
        else:
            self.follow(queue_name)  # something may have changed in the last moment

    def _begin_to_open(self, queue: Queue, place: LogicalQueuePlace) -> _Running:
        numbers = set(place.partitions)
        places = [
            msgspec.structs.replace(each, epoch=place.epoch) for each in queue.partitions if each.number in numbers
        ]
        states = [
            PartitionState(each, self.backends[each.backend].partition(each.uid), self._limits) for each in places
        ]
        rng = random.Random(self._rng.getrandbits(64))  # noqa: S311 - jitter, not secrets
        logical_queue = LogicalQueue(
            queue, states, clock=self.clock, rng=rng, limits=self._limits, observer=self.observer
        )
        opening = asyncio.create_task(self._open(logical_queue, places), name=f"open {queue.name}")
        opening.add_done_callback(lambda task: _tell_error(queue.name, task))
        return _Running(place, logical_queue, opening)

    async def _open(self, logical_queue: LogicalQueue, places: list[PartitionPlace]) -> None:
        for place in places:
            if self.backends[place.backend].driver == "memory":  # it has lost everything when it stopped
                await self._create_again(place)
        await logical_queue.open()
        logical_queue.spawn(Relay(logical_queue, self.deliver).run())

    async def _create_again(self, place: PartitionPlace) -> None:
        try:
            await self.backends[place.backend].create(place.uid)
        except StorageError as error:
            _log.warning("partition cannot be created now", partition_uid=place.uid, error=str(error))

    async def _shut(self, queue_name: str, running: _Running) -> None:
        self.changed(queue_name)
        await _cancel(running.opening)
        await running.logical_queue.close(lambda: Moved(queue_name))

    async def settle(self, queue_name: str) -> None:
        """Wait until what is here of a queue is as it is assigned, and open as far as it can be opened."""
        while (task := self._bringing.get(queue_name)) is not None:
            await asyncio.wait({task})
        openings = {running.opening for running in self._running.get(queue_name, {}).values()}
        if openings:
            await asyncio.wait(openings)

    # What runs here.

    def logical_queues(self, queue_name: str) -> list[LogicalQueue]:
        """Those of one queue that run here."""
        return [running.logical_queue for running in self._running.get(queue_name, {}).values()]

    def all_logical_queues(self) -> Iterator[LogicalQueue]:
        for queue_name in list(self._running):
            yield from self.logical_queues(queue_name)

    def owner(self, queue_name: str, partition: int) -> LogicalQueue:
        """The logical queue here that owns a partition."""
        for logical_queue in self.logical_queues(queue_name):
            if partition in logical_queue.members:
                return logical_queue
        raise Moved(queue_name)

    def is_open(self, queue_name: str, epoch: int) -> bool:
        """Whether the queue is known here up to that epoch, and what of it is assigned to this instance is open."""
        known = self.catalog.find(queue_name) is not None and self.catalog.assignment(queue_name).epoch >= epoch
        in_line = known and self._is_in_line(queue_name)
        return in_line and all(running.opening.done() for running in self._running.get(queue_name, {}).values())

    def owns_nothing(self) -> bool:
        return not self._running and not self._bringing

    def failing(self) -> Counter[str]:
        """How many partitions cannot be used, by backend."""
        partitions = [partition for each in self.all_logical_queues() for partition in each.stats().partitions]
        return Counter(partition.backend for partition in partitions if partition.state != Status.AVAILABLE)

    def set_backends(self, backends: Mapping[str, Backend], affinities: Mapping[str, float]) -> None:
        """Let these be all backends. Those that go must have no partitions."""
        for name, affinity in affinities.items():
            backends[name].affinity = affinity
        self.backends.clear()
        self.backends.update(backends)

    def update_limits(self, limits: Limits) -> None:
        """They hold at once, for what is open and for what comes."""
        self._limits = limits
        for logical_queue in self.all_logical_queues():
            logical_queue.update(logical_queue.queue, limits)
            for member in logical_queue.members.values():
                member.state.limits = limits

    def stop_waiting(self) -> None:
        for logical_queue in self.all_logical_queues():
            logical_queue.stop_waiting()

    async def close(self) -> None:
        """Close everything. Waiting reserves are answered, what runs is finished."""
        self._closed = True
        await asyncio.gather(*self._bringing.values(), return_exceptions=True)  # what it lets go of is closed in order
        running = [each for here in self._running.values() for each in here.values()]
        await _cancel(*(each.opening for each in running))
        await asyncio.gather(*(each.logical_queue.close() for each in running))
        self._running.clear()


def _tell_error(queue_name: str, task: asyncio.Task[None]) -> bool:
    """Log what went wrong with a task, if anything did."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("queue cannot be opened", queue=queue_name, exc_info=error)
        return True
    return task.cancelled()


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
