"""The catalog: which queues there are, where their partitions live and who owns them.

queues/<name>       Queue
assignments/<name>  Assignment
doomed/<uid>        backend: a partition that is to be dropped, or that was not yet given to a queue
counters/partition  the highest uid ever given

Every change is a compare-and-set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from cluster.assignment import Assignment
from cluster.coordinator import Coordinator
from cluster.mirror import Mirror
from querator.errors import Conflict, NoSuchQueue
from querator.queues import PartitionPlace, Queue

_QUEUES = "queues/"
_ASSIGNMENTS = "assignments/"
_DOOMED = "doomed/"
_COUNTER = "counters/partition"

_encode = msgspec.json.Encoder().encode
_decode_queue = msgspec.json.Decoder(Queue).decode
_decode_assignment = msgspec.json.Decoder(Assignment).decode


class Catalog:
    """Holds a copy of all queues in memory; what is read from it costs nothing."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._queues = Mirror(coordinator, _QUEUES, _decode_queue, self._tell)
        self._assignments = Mirror(coordinator, _ASSIGNMENTS, _decode_assignment, self._tell)
        self._listeners: list[Callable[[str], None]] = []

    async def load(self) -> None:
        await self._queues.load()
        await self._assignments.load()

    async def follow(self) -> None:
        """Keep up with what others change; ends when the coordinator is closed."""
        await asyncio.gather(self._queues.follow(), self._assignments.follow())

    def listen(self, listener: Callable[[str], None]) -> None:
        """Be told the name of every queue that comes, changes, goes or gets other owners."""
        self._listeners.append(listener)

    def _tell(self, queue_name: str) -> None:
        for listener in self._listeners:
            listener(queue_name)

    def find(self, queue_name: str) -> Queue | None:
        return self._queues.get(queue_name)

    def get(self, queue_name: str) -> Queue:
        queue = self._queues.get(queue_name)
        if queue is None:
            raise NoSuchQueue(queue_name)
        return queue

    def all(self) -> list[Queue]:
        """In the order of names."""
        return [queue for _, queue in self._queues.items()]

    def assignment(self, queue_name: str) -> Assignment:
        """Who owns the queue's partitions: nobody, if nothing was assigned yet."""
        found = self._assignments.get(queue_name)
        if found is not None:
            return found
        queue = self._queues.get(queue_name)
        # Before there were assignments, the epoch of a partition was written with its place.
        return Assignment(epoch=max([place.epoch for place in queue.partitions], default=0) if queue else 0)

    async def assign(self, queue_name: str, assignment: Assignment) -> bool:
        """Replace the assignment that `assignment` gives; False if somebody else did, or the queue is gone."""
        key = self._assignments.key(queue_name)
        expected = {key: self._assignments.revision(queue_name)}
        expected[self._queues.key(queue_name)] = self._queues.revision(queue_name)
        revision = await self._coordinator.transact(expected=expected, puts={key: _encode(assignment)})
        if revision is None:
            return False
        self._assignments.put(queue_name, assignment, revision)
        return True

    async def new_places(self, backends: list[str]) -> tuple[PartitionPlace, ...]:
        """Places for new partitions, one for each backend named. They are doomed until a queue takes them."""
        while True:
            entry = await self._coordinator.get(_COUNTER)
            last = int(entry.value) if entry else 0
            places = tuple(
                PartitionPlace(number=number, uid=last + 1 + number, backend=backend)
                for number, backend in enumerate(backends)
            )
            puts = {f"{_DOOMED}{place.uid}": place.backend.encode() for place in places}
            puts[_COUNTER] = str(last + len(places)).encode()
            expected = {_COUNTER: entry.revision if entry else 0}
            if await self._coordinator.transact(expected=expected, puts=puts):
                return places

    async def create(self, queue: Queue) -> None:
        doomed = [f"{_DOOMED}{place.uid}" for place in queue.partitions]
        if not await self._write(queue, 0, deletes=doomed):
            raise Conflict("queue already exists", f"a queue is named '{queue.name}'")

    async def replace(self, queue: Queue) -> None:
        if not await self._write(queue, self._queues.revision(queue.name)):
            raise Conflict("queue was changed", f"somebody else changed '{queue.name}' at the same time")

    async def _write(self, queue: Queue, expected: int, deletes: list[str] | None = None) -> bool:
        key = self._queues.key(queue.name)
        revision = await self._coordinator.transact(
            expected={key: expected}, puts={key: _encode(queue)}, deletes=deletes or []
        )
        if revision is not None:
            self._queues.put(queue.name, queue, revision)
        return revision is not None

    async def delete(self, queue: Queue) -> None:
        """Forget a queue and its owners; its partitions are doomed."""
        key = self._queues.key(queue.name)
        puts = {f"{_DOOMED}{place.uid}": place.backend.encode() for place in queue.partitions}
        revision = await self._coordinator.transact(
            expected={key: self._queues.revision(queue.name)},
            puts=puts,
            deletes=[key, self._assignments.key(queue.name)],
        )
        if revision is None:
            raise Conflict("queue was changed", f"somebody else changed '{queue.name}' at the same time")
        self._queues.remove(queue.name, revision)
        self._assignments.remove(queue.name, revision)

    async def doomed(self) -> list[tuple[int, str]]:
        """Partitions that are to be dropped: uid and backend."""
        entries = await self._coordinator.list(_DOOMED)
        return [(int(entry.key.removeprefix(_DOOMED)), entry.value.decode()) for entry in entries]

    async def buried(self, uid: int) -> None:
        """A doomed partition was dropped."""
        await self._coordinator.transact(expected={}, puts={}, deletes=[f"{_DOOMED}{uid}"])
