"""The catalog: which queues there are and where their partitions live. Every change is a compare-and-set.

queues/<name>       Queue
doomed/<uid>        backend: a partition that is to be dropped, or that was not yet given to a queue
counters/partition  the highest uid ever given
"""

from __future__ import annotations

import msgspec

from cluster.coordinator import Coordinator
from querator.errors import Conflict, NoSuchQueue
from querator.queues import PartitionPlace, Queue

_QUEUES = "queues/"
_DOOMED = "doomed/"
_COUNTER = "counters/partition"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Queue).decode


class Catalog:
    """Holds a copy of all queues in memory; what is read from it costs nothing."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._queues: dict[str, Queue] = {}
        self._revisions: dict[str, int] = {}

    async def load(self) -> None:
        entries = await self._coordinator.list(_QUEUES)
        queues = [(_decode(entry.value), entry.revision) for entry in entries]
        self._queues = {queue.name: queue for queue, _ in queues}
        self._revisions = {queue.name: revision for queue, revision in queues}

    def find(self, queue_name: str) -> Queue | None:
        return self._queues.get(queue_name)

    def get(self, queue_name: str) -> Queue:
        queue = self._queues.get(queue_name)
        if queue is None:
            raise NoSuchQueue(queue_name)
        return queue

    def all(self) -> list[Queue]:
        """In the order of names."""
        return [self._queues[name] for name in sorted(self._queues)]

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
        await self._write(queue, 0, deletes=doomed)

    async def replace(self, queue: Queue) -> None:
        await self._write(queue, self._revisions[queue.name])

    async def _write(self, queue: Queue, expected: int, deletes: list[str] | None = None) -> None:
        key = _QUEUES + queue.name
        revision = await self._coordinator.transact(
            expected={key: expected}, puts={key: _encode(queue)}, deletes=deletes or []
        )
        if revision is None and not expected:
            raise Conflict("queue already exists", f"a queue is named '{queue.name}'")
        if revision is None:
            raise Conflict("queue was changed", f"somebody else changed '{queue.name}' at the same time")
        self._queues[queue.name] = queue
        self._revisions[queue.name] = revision

    async def delete(self, queue: Queue) -> None:
        """Forget a queue; its partitions are doomed."""
        key = _QUEUES + queue.name
        puts = {f"{_DOOMED}{place.uid}": place.backend.encode() for place in queue.partitions}
        expected = {key: self._revisions[queue.name]}
        if not await self._coordinator.transact(expected=expected, puts=puts, deletes=[key]):
            raise Conflict("queue was changed", f"somebody else changed '{queue.name}' at the same time")
        del self._queues[queue.name]
        del self._revisions[queue.name]

    async def doomed(self) -> list[tuple[int, str]]:
        """Partitions that are to be dropped: uid and backend."""
        entries = await self._coordinator.list(_DOOMED)
        return [(int(entry.key.removeprefix(_DOOMED)), entry.value.decode()) for entry in entries]

    async def buried(self, uid: int) -> None:
        """A doomed partition was dropped."""
        await self._coordinator.transact(expected={}, puts={}, deletes=[f"{_DOOMED}{uid}"])
