"""The catalog: which queues there are, where their partitions live and who owns them.

queues/<name>       Queue
assignments/<name>  Assignment
doomed/<uid>        Doomed: a partition that is to be dropped, or that was not yet given to a queue
doomed/<uid>/kept   there while its queue is being made, and the maker lives
counters/partition  the highest uid ever given

Every change is a compare-and-set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from cluster.assignment import Assignment
from cluster.coordinator import Coordinator, Lease
from cluster.mirror import Mirror
from querator.errors import Conflict, NoSuchQueue
from querator.queues import PartitionPlace, Queue

_QUEUES = "queues/"
_ASSIGNMENTS = "assignments/"
_DOOMED = "doomed/"
_KEPT = "/kept"
_COUNTER = "counters/partition"


class Doomed(msgspec.Struct, frozen=True):
    backend: str
    first: int  # uid of the first partition of the same queue


_encode = msgspec.json.Encoder().encode
_decode_doomed = msgspec.json.Decoder(Doomed).decode
_decode_queue = msgspec.json.Decoder(Queue).decode
_decode_assignment = msgspec.json.Decoder(Assignment).decode


class Catalog:
    """Holds a copy of all queues in memory; what is read from it costs nothing."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._queues = Mirror(coordinator, _QUEUES, _decode_queue, self._tell)
        self._assignments = Mirror(coordinator, _ASSIGNMENTS, _decode_assignment, self._tell)
        self._listeners: list[Callable[[str], None]] = []
        self._new: dict[int, int] = {}  # first uid of places that we are making a queue of → revision of its doom

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
        # The epochs of a queue begin above what was written with its places.
        return Assignment(epoch=max([place.epoch for place in queue.partitions], default=0) if queue else 0)

    async def assign(self, queue_name: str, assignment: Assignment, proof: Mapping[str, int]) -> bool:
        """Replace what `assignment` gives; False if somebody else did, the queue is gone, or ``proof`` does not hold."""
        key = self._assignments.key(queue_name)
        expected = {**proof, key: self._assignments.revision(queue_name)}
        expected[self._queues.key(queue_name)] = self._queues.revision(queue_name)
        revision = await self._coordinator.transact(expected=expected, puts={key: _encode(assignment)})
        if revision is None:
            return False
        self._assignments.put(queue_name, assignment, revision)
        return True

    async def new_places(self, backends: list[str], lease: Lease | None = None) -> tuple[PartitionPlace, ...]:
        """Places for new partitions, one for each backend named. They are doomed until a queue takes them.

        With a lease, nobody drops them as long as it lasts, or until they are `given_up`.
        """
        last = await self._new_uids(len(backends))
        places = tuple(
            PartitionPlace(number=number, uid=last + 1 + number, backend=backend)
            for number, backend in enumerate(backends)
        )
        if lease is not None:
            await self._coordinator.transact(expected={}, puts=dict.fromkeys(_kept(places), b""), lease=lease)
        revision = await self._coordinator.transact(expected={}, puts=_dooms(places))
        assert revision is not None, "nothing was expected"
        self._new[places[0].uid] = revision
        # Above every epoch of an earlier queue of the same name: each of those took a revision of its own.
        return tuple(msgspec.structs.replace(place, epoch=revision) for place in places)

    async def _new_uids(self, count: int) -> int:
        """Take so many; returns the one before the first."""
        while True:
            entry = await self._coordinator.get(_COUNTER)
            last = int(entry.value) if entry else 0
            expected = {_COUNTER: entry.revision if entry else 0}
            if await self._coordinator.transact(expected=expected, puts={_COUNTER: str(last + count).encode()}):
                return last

    async def give_up(self, places: Sequence[PartitionPlace]) -> None:
        """No queue will have these places: they may be dropped."""
        self._new.pop(places[0].uid, None)
        await self._coordinator.transact(expected={}, puts={}, deletes=_kept(places))

    async def create(self, queue: Queue) -> None:
        """Of places that are new, and that nobody has begun to drop."""
        first = queue.partitions[0].uid
        expected = {self._queues.key(queue.name): 0, _doomed(first): self._new.pop(first, 0)}
        deletes = [*_dooms(queue.partitions), *_kept(queue.partitions)]
        if not await self._write(queue, expected, deletes=deletes):
            raise Conflict("queue already exists", f"a queue is named '{queue.name}', or making it took too long")

    async def replace(self, queue: Queue) -> None:
        if not await self._write(queue, {self._queues.key(queue.name): self._queues.revision(queue.name)}):
            raise Conflict("queue was changed", f"somebody else changed '{queue.name}' at the same time")

    async def _write(self, queue: Queue, expected: Mapping[str, int], deletes: Sequence[str] = ()) -> bool:
        puts = {self._queues.key(queue.name): _encode(queue)}
        revision = await self._coordinator.transact(expected=expected, puts=puts, deletes=deletes)
        if revision is not None:
            self._queues.put(queue.name, queue, revision)
        return revision is not None

    async def delete(self, queue: Queue, owners: Assignment | None = None) -> None:
        """Forget a queue and its owners; its partitions are doomed. With ``owners``, only if it has these."""
        key, assigned_key = self._queues.key(queue.name), self._assignments.key(queue.name)
        expected = {key: self._queues.revision(queue.name)}
        if owners is not None:
            is_same = owners == self.assignment(queue.name)
            expected[assigned_key] = self._assignments.revision(queue.name) if is_same else -1
        puts = _dooms(queue.partitions)
        revision = await self._coordinator.transact(expected=expected, puts=puts, deletes=[key, assigned_key])
        if revision is None:
            raise Conflict("queue was changed", f"somebody else changed '{queue.name}' at the same time")
        self._queues.remove(queue.name, revision)
        self._assignments.remove(queue.name, revision)

    async def doomed(self) -> list[tuple[int, str]]:
        """Partitions that are to be dropped: uid and backend."""
        entries = {entry.key: entry.value for entry in await self._coordinator.list(_DOOMED)}
        kept = {key.removesuffix(_KEPT) for key in entries if key.endswith(_KEPT)}
        found = [(key, value) for key, value in entries.items() if key not in kept and not key.endswith(_KEPT)]
        return [(int(key.removeprefix(_DOOMED)), _decode_doomed(value).backend) for key, value in found]

    async def condemn(self, uid: int) -> bool:
        """From here on no queue can take the partition; False if one has.

        Whoever makes a queue expects the entry of its first partition as it was written, so that entry is touched.
        """
        while (entry := await self._coordinator.get(_doomed(uid))) is not None:
            first_key = _doomed(_decode_doomed(entry.value).first)
            first = await self._coordinator.get(first_key)
            touched = entry if first is None else first  # a queue may have taken both since the first look
            expected = {first_key: 0 if first is None else first.revision, entry.key: entry.revision}
            if await self._coordinator.transact(expected=expected, puts={touched.key: touched.value}):
                return True
        return False

    async def buried(self, uid: int) -> None:
        """A doomed partition was dropped."""
        await self._coordinator.transact(expected={}, puts={}, deletes=[_doomed(uid)])


def _doomed(uid: int) -> str:
    return f"{_DOOMED}{uid}"


def _dooms(places: Sequence[PartitionPlace]) -> dict[str, bytes]:
    first = places[0].uid if places else 0
    return {_doomed(place.uid): _encode(Doomed(backend=place.backend, first=first)) for place in places}


def _kept(places: Sequence[PartitionPlace]) -> list[str]:
    return [_doomed(place.uid) + _KEPT for place in places]
