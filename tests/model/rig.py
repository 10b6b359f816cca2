"""Real logical queues (one, and its dead queue) on a real backend, driven step by step under a manual clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from querator import cold_path
from querator.clock import ManualClock
from querator.items import Item
from querator.limits import Limits
from querator.logical_queue import LogicalQueue
from querator.member import Status
from querator.partition import PartitionState
from querator.queues import PartitionPlace, Queue, QueueSettings
from querator.relay import Relay
from querator.waist import Backend

# So small that everything happens: blocks are cut, windows overflow, payloads are let go of and read again.
TINY = Limits(block_items=3, block_bytes=40, window_items=6, window_bytes=400, held_bytes=60, batch_items=8)
_DEAD_UID = 1000
_PATIENCE_S = 30


class Rig:
    def __init__(self, backend: Backend, settings: QueueSettings, clock: ManualClock) -> None:
        self.backend = backend
        self.settings = settings
        self.clock = clock
        self.epoch = 0
        self.main: LogicalQueue
        self.dead: LogicalQueue

    async def create(self) -> None:
        for uid in (*range(1, self.settings.requested_partitions + 1), _DEAD_UID):
            await self.backend.create(uid)

    async def open(self) -> None:
        """A new owner takes everything over, as after a crash."""
        self.epoch += 1
        uids = range(1, self.settings.requested_partitions + 1)
        self.main = self._logical_queue(self.settings, list(uids))
        self.dead = self._logical_queue(QueueSettings(queue_name="dead"), [_DEAD_UID])
        await self.dead.open()
        await self.main.open()
        self.main.spawn(Relay(self.main, self._deliver).run())

    def _logical_queue(self, settings: QueueSettings, uids: list[int]) -> LogicalQueue:
        places = tuple(
            PartitionPlace(number=number, uid=uid, backend="b", epoch=self.epoch) for number, uid in enumerate(uids)
        )
        queue = Queue(settings=settings, partitions=places, created_at_ms=0, updated_at_ms=0)
        states = [PartitionState(place, self.backend.partition(place.uid), TINY) for place in places]
        return LogicalQueue(queue, states, clock=self.clock, rng=random.Random(1), limits=TINY)

    async def _deliver(self, target: str, source_uid: int, entries: list[tuple[int, Item]]) -> None:
        assert target == "dead"
        await self.dead.deliver(0, source_uid, entries)

    async def close(self) -> None:
        await self.main.close()
        await self.dead.close()

    async def crash(self) -> None:
        """The owner stops where it is; what it has under way is lost or lands, as it may be."""
        for logical_queue in (self.main, self.dead):
            logical_queue._closed = True
            tasks = list(logical_queue._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def settle(self) -> None:
        """Wait until nothing moves any more."""
        try:
            await until(lambda: self._is_still(self.main) and self._is_still(self.dead))
        except TimeoutError:
            raise AssertionError(f"it never comes to rest: {self._moving()}") from None

    def _moving(self) -> str:
        return "; ".join(
            f"{logical_queue.queue.name}/{number}: {member.status} turn={member.turn} inbox={len(member.inbox)} "
            f"reading={member.reading} abandoned={member.abandoned} due={len(member.state.due)} "
            f"outbox={member.state.summary.outbox} next={member.next_event_ms() - self.clock.now_ms()}"
            for logical_queue in (self.main, self.dead)
            for number, member in logical_queue.members.items()
        )

    def _is_still(self, logical_queue: LogicalQueue) -> bool:
        return not logical_queue._turn_is_coming and all(
            member.status is Status.AVAILABLE
            and member.turn is None
            and not member.inbox
            and not member.reading
            and not member.abandoned
            and not member.state.summary.outbox
            and not member.state.due
            and member.next_event_ms() > self.clock.now_ms()
            for member in logical_queue.members.values()
        )

    async def contents(self, logical_queue: LogicalQueue) -> dict[str, bool]:
        """All items that are stored, by their payload, and whether each is leased."""
        found: dict[str, bool] = {}
        for number in logical_queue.members:
            for view in await cold_path.list_items(logical_queue, number, "", 100_000):
                tag = view.item.payload.decode()
                assert tag not in found, f"{tag} is there twice"
                found[tag] = view.is_leased
        return found

    async def scheduled(self) -> set[str]:
        views = [await cold_path.list_scheduled(self.main, number, "", 100_000) for number in self.main.members]
        return {view.item.payload.decode() for page in views for view in page}


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that other tasks bring about; fails only if it never holds."""
    async with asyncio.timeout(_PATIENCE_S):
        for step in range(10_000_000):
            await asyncio.sleep(0 if step < 50 else 0.001)
            if condition():
                await asyncio.sleep(0)
                if condition():
                    return


async def outcome(awaitable: Awaitable[object]) -> BaseException | None:
    try:
        await awaitable
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error
    return None
