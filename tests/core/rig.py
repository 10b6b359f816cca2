"""One logical queue on a real backend behind the fault injector, under a clock that the test turns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import msgspec

from querator import cold_path
from querator.clock import ManualClock
from querator.inspection import ItemView
from querator.items import Item
from querator.limits import Limits
from querator.logical_queue import LogicalQueue
from querator.member import Member
from querator.partition import PartitionState
from querator.queues import PartitionPlace, PartitionStats, Queue, QueueSettings
from querator.requests import Produced, Reservation, RetryItem, Run, Scheduled
from querator.waist import Partition
from storage import FaultyBackend
from storage.faulty import Call, Fault, Outcome, ScriptedFaults

T = TypeVar("T")

PATIENCE_S = 10.0  # before a test that waits for something gives up
TIMEOUT_MS = 60_000
LEASE_MS = 60_000

REFUSED = Fault(outcome=Outcome.REFUSED)
LOST_BEFORE = Fault(outcome=Outcome.LOST_BEFORE)
LOST_AFTER = Fault(outcome=Outcome.LOST_AFTER)

# Everything that is bounded, bounded so tightly that read-ahead, body re-reads and eviction happen with a few items.
TINY = Limits(block_items=2, block_bytes=64, window_items=4, window_bytes=4096, held_bytes=40)


class Handout(NamedTuple):
    """What a reserve gave, flat."""

    partition: int
    deadline_ms: int
    ids: list[str]
    items: list[Item]

    @property
    def payloads(self) -> list[str]:
        return [item.payload.decode() for item in self.items]


def handout(reservation: Reservation) -> Handout:
    runs = reservation.runs
    return Handout(
        reservation.partition, reservation.lease_deadline_ms, ids_of(runs), [i for r in runs for i in r.items]
    )


def ids_of(runs: list[Run]) -> list[str]:
    return [item_id for run in runs for item_id in run.ids()]


def items_of(*payloads: str) -> list[Item]:
    return [Item(payload=payload.encode()) for payload in payloads]


class Rig:
    def __init__(self, backend: FaultyBackend, faults: ScriptedFaults, name: str = "mail", first_uid: int = 1) -> None:
        self.backend = backend
        self.faults = faults
        self.clock = ManualClock()
        self.limits = Limits()
        self.queue = Queue(
            settings=QueueSettings(queue_name=name, lease_timeout_ms=LEASE_MS),
            partitions=(),
            created_at_ms=0,
            updated_at_ms=0,
        )
        self.first_uid = first_uid
        self.wrap: Callable[[Partition], Partition] = lambda partition: partition
        self.logical_queue: LogicalQueue

    # Life.

    async def open(self, partitions: int = 1, *, limits: Limits | None = None, **settings: object) -> Rig:
        """Make the partitions, and open a logical queue over them."""
        self.limits = limits or self.limits
        places = tuple(
            PartitionPlace(number=number, uid=self.first_uid + number, backend=self.backend.name)
            for number in range(partitions)
        )
        for place in places:
            await self.backend.create(place.uid)
        self.queue = msgspec.structs.replace(
            self.queue, settings=msgspec.structs.replace(self.queue.settings, **settings), partitions=places
        )
        await self.take_over()
        return self

    async def take_over(self) -> LogicalQueue:
        """Open the partitions under the next epoch, whoever has them; returns the logical queue that had."""
        before = getattr(self, "logical_queue", None)
        places = tuple(msgspec.structs.replace(place, epoch=place.epoch + 1) for place in self.queue.partitions)
        self.queue = msgspec.structs.replace(self.queue, partitions=places)
        states = [PartitionState(place, self.wrap(self.backend.partition(place.uid)), self.limits) for place in places]
        self.logical_queue = LogicalQueue(
            self.queue, states, clock=self.clock, rng=random.Random(1), limits=self.limits
        )
        await self.logical_queue.open()
        await self.quiet()
        return before or self.logical_queue

    async def crash_and_reopen(self, clock: ManualClock | None = None) -> None:
        """Lose the memory, keep what is stored."""
        await self.kill()
        self.clock = clock or self.clock
        await self.take_over()

    async def kill(self) -> None:
        """End the logical queue as a killed process would: no answer, no goodbye."""
        dying = self.logical_queue
        dying._closed = True
        for task in list(dying._tasks):
            task.cancel()
        await asyncio.gather(*dying._tasks, return_exceptions=True)

    def update(self, **settings: object) -> None:
        """New settings of the queue."""
        self.replace(settings=msgspec.structs.replace(self.queue.settings, **settings))

    def replace(self, **changes: object) -> None:
        self.queue = msgspec.structs.replace(self.queue, **changes)
        self.logical_queue.update(self.queue)

    # Waiting.

    async def until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        """Let everything run that can, without letting time pass, until it is so."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, f"waited in vain for {what}"
            self.clock.advance(0)
            await asyncio.sleep(0.0005)

    async def quiet(self) -> None:
        """Until nothing runs or waits to run at this instant."""
        logical_queue = self.logical_queue
        for _ in range(2):  # what is quiet now may have woken somebody who acts on the next pass
            for _ in range(5):
                await asyncio.sleep(0)
            await self.until(
                lambda: (
                    not (
                        logical_queue._turn_is_coming
                        or any(
                            member.turn or member.reading for member in logical_queue.members.values() if member.free
                        )
                        or any(member.turn for member in logical_queue.members.values())
                    )
                ),
                "the logical queue to be quiet",
            )

    async def pass_ms(self, by_ms: int) -> None:
        """Let time pass, and what is due happen."""
        self.clock.advance(by_ms)
        await self.quiet()
        self.clock.advance(1)  # what was read as due at that instant is acted upon at the next
        await self.quiet()

    async def recover(self) -> None:
        """Let time pass until every partition is available."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while any(partition.state != "available" for partition in self.logical_queue.stats().partitions):
            assert asyncio.get_running_loop().time() < deadline, "a partition did not recover"
            self.clock.advance(10)
            await asyncio.sleep(0.0005)
        await self.quiet()

    async def answer(self, future: Awaitable[T]) -> T:
        task = asyncio.ensure_future(future)
        await self.until(task.done, "an answer")
        return await task

    # Calls.

    def send(self, *payloads: str, timeout_ms: int = TIMEOUT_MS) -> asyncio.Future[Produced]:
        items = items_of(*payloads)
        return self.logical_queue.produce(items, [], sum(len(item.payload) for item in items), timeout_ms)

    async def produce(self, *payloads: str) -> list[str]:
        return ids_of((await self.answer(self.send(*payloads))).runs)

    async def schedule(self, payload: str, in_ms: int) -> str:
        scheduled = [Scheduled(self.clock.now_ms() + in_ms, item) for item in items_of(payload)]
        produced = await self.answer(self.logical_queue.produce([], scheduled, len(payload), TIMEOUT_MS))
        return produced.scheduled_ids[0]

    def ask(
        self, count: int = 1, timeout_ms: int = TIMEOUT_MS, lease_timeout_ms: int = 0
    ) -> asyncio.Future[Reservation]:
        return self.logical_queue.reserve(count, "consumer", timeout_ms, lease_timeout_ms)

    async def reserve(self, count: int = 1, timeout_ms: int = TIMEOUT_MS, lease_timeout_ms: int = 0) -> Handout:
        return handout(await self.answer(self.ask(count, timeout_ms, lease_timeout_ms)))

    async def complete(self, ids: list[str], partition: int = 0) -> None:
        await self.answer(self.logical_queue.complete(partition, ids, TIMEOUT_MS))

    async def retry(self, ids: list[str], *, retry_at_ms: int = 0, dead: bool = False, partition: int = 0) -> None:
        items = [RetryItem(item_id, retry_at_ms, dead) for item_id in ids]
        await self.answer(self.logical_queue.retry(partition, items, TIMEOUT_MS))

    async def renew(self, ids: list[str], lease_timeout_ms: int = 0, partition: int = 0) -> int:
        return await self.answer(self.logical_queue.renew(partition, ids, TIMEOUT_MS, lease_timeout_ms))

    async def listed(self, partition: int = 0, pivot: str = "", limit: int = 10_000) -> list[ItemView]:
        return await self.answer(cold_path.list_items(self.logical_queue, partition, pivot, limit))

    async def list_scheduled(self, partition: int = 0) -> list[ItemView]:
        return await self.answer(cold_path.list_scheduled(self.logical_queue, partition, "", 10_000))

    async def import_items(self, items: list[Item], partition: int = 0) -> list[ItemView]:
        return await self.answer(cold_path.import_items(self.logical_queue, partition, items))

    async def delete(self, ids: list[str], partition: int = 0) -> None:
        await self.answer(cold_path.delete_items(self.logical_queue, partition, ids))

    async def clear(self, *, items: bool = False, scheduled: bool = False, destructive: bool = False) -> None:
        await self.answer(
            cold_path.clear(self.logical_queue, items=items, scheduled=scheduled, destructive=destructive)
        )

    # Sight.

    def member(self, partition: int = 0) -> Member:
        return self.logical_queue.members[partition]

    def stats(self, partition: int = 0) -> PartitionStats:
        return self.logical_queue.stats().partitions[partition]

    async def payloads(self, partition: int = 0) -> list[str]:
        """Of ready and leased items, as listed."""
        return [view.item.payload.decode() for view in await self.listed(partition)]

    async def drain(self, at_once: int = 10) -> list[str]:
        """Reserve and complete until nothing is ready; the payloads in the order in which they came."""
        payloads: list[str] = []
        while sum(partition.ready for partition in self.logical_queue.stats().partitions):
            given = await self.reserve(at_once)
            payloads.extend(given.payloads)
            await self.complete(given.ids, given.partition)
        return payloads

    async def check_counters(self) -> None:
        """Stats equal the contents as listed, and as stored."""
        await self.quiet()
        for number, member in self.logical_queue.members.items():
            views = await self.listed(number)
            stats = self.stats(number)
            leased = sum(view.is_leased for view in views)
            scheduled = await self.list_scheduled(number)
            assert (stats.ready, stats.leased) == (len(views) - leased, leased)
            assert stats.scheduled == len(scheduled)
            state = member.state
            assert state.window_items == sum(block.ready.bit_count() for block in state.window.values())
            assert state.window_bytes == sum(block.size for block in state.window.values())

    def gate(self, call: Call = Call.COMMIT, outcome: Outcome = Outcome.DONE, uid: int | None = None) -> asyncio.Event:
        """The next such call waits until the event is set, and then ends so."""
        gate = asyncio.Event()
        self.faults.add(call, Fault(gate=gate, outcome=outcome), partition=uid)
        return gate
