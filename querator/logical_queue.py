"""The logical queue: the single-threaded actor through which all reads and writes of its partitions go.

It lives on one event loop and has no lock. Requests gather while partitions commit; whenever one is free, a *turn* takes
everything that waits for it (see `querator.turn`). The rare operations are in `querator.cold_path`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar

import structlog

from querator.alarm import Alarm
from querator.clock import Clock, sleep_ms
from querator.errors import (
    InternalError,
    InvalidRequest,
    Overloaded,
    PartitionFailing,
    ProduceInDoubt,
    QueratorError,
    RetryRequest,
    Stopping,
    TimedOut,
)
from querator.items import NEVER_MS, Item
from querator.limits import Limits
from querator.member import Member, Status
from querator.observer import Observer
from querator.partition import PartitionState
from querator.queues import LogicalQueueStats, Queue
from querator.requests import (
    Complete,
    Deliver,
    Produce,
    Produced,
    Renew,
    Request,
    Reservation,
    Reserve,
    Retry,
    RetryItem,
    Scheduled,
    refuse,
)
from querator.turn import Turn
from querator.waist import Batch, Fenced, OutcomeUnknown, StorageError
from querator.waiting import Waiting

_log = structlog.get_logger(__name__)

_REOPEN_FIRST_MS = 50
_REOPEN_LAST_MS = 5_000
_LOOKED_AT_PER_MS = 500  # waiting requests

T = TypeVar("T")


class LogicalQueue:
    """Owns the partitions it is given. `open` before, `close` after; both may be called twice."""

    def __init__(
        self,
        queue: Queue,
        partitions: Sequence[PartitionState],
        *,
        clock: Clock,
        rng: random.Random,
        limits: Limits,
        observer: Observer | None = None,
    ) -> None:
        self.queue = queue
        self.members = {state.place.number: Member(state) for state in partitions}
        self.clock = clock
        self.limits = limits
        self.progress = asyncio.Event()  # set whenever a commit has landed
        self._rng = rng
        self._observer = observer if observer is not None else Observer()
        self._waiting = Waiting(limits)
        self._loop = asyncio.get_running_loop()
        self._turn_is_coming = False
        self._next_deadline_ms = NEVER_MS  # no waiting request's is earlier
        self._alarm = Alarm(clock, self.wake)
        self._tasks: set[asyncio.Task[None]] = set()
        self._turned = asyncio.Event()  # set after each turn
        self._refusal: Callable[[], QueratorError] | None = None  # what new requests are told, if none are taken
        self._leaving = False  # reserves do not wait any more
        self._closed = False
        self.on_turn: Callable[[], None] | None = None  # called after a turn of a free partition, or if none works
        self.on_leave: Callable[[Reserve], bool] | None = None  # whether a waiting reserve goes on elsewhere

    # Lifecycle.

    async def open(self) -> None:
        """Open all partitions; one that fails is tried again in the background."""
        await asyncio.gather(*(self._open(member) for member in self.members.values()))
        self.wake()

    async def _open(self, member: Member) -> None:
        if member.status is Status.AVAILABLE:
            return
        try:
            await member.state.open()
        except Fenced:
            self._lose(member)
        except StorageError as error:
            self._fail(member, error, rebuild=True)
        else:
            member.status = Status.AVAILABLE
            self._observer.opened(member.state.place)
            self.progress.set()

    def stop_waiting(self, refusal: Callable[[], QueratorError] = Stopping) -> None:
        """Take no more requests, and answer the reserves that wait; what is being written is still handed out."""
        self._refusal = refusal
        self._leaving = True
        self.wake()

    async def close(self, refusal: Callable[[], QueratorError] = Stopping) -> None:
        """Answer what waits, finish what runs as long as the grace lasts, let go. ``refusal`` says why."""
        self.stop_waiting(refusal)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.stop_grace_ms / 1000):
                await self._finish()
        self._closed = True
        self._alarm.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for member in self.members.values():
            member.status = Status.UNAVAILABLE
            refuse(member.in_doubt(), ProduceInDoubt())
        self._waiting.send_away(self.on_leave, refusal())
        refuse(self._unanswered(), refusal())
        await asyncio.gather(*(member.state.stored.close() for member in self.members.values()))

    async def _finish(self) -> None:
        """Wait until all requests are answered that partitions can still take, and nothing is leased for nobody."""
        while self._has_work():
            self._turned.clear()
            await self._turned.wait()

    def _has_work(self) -> bool:
        works = [member for member in self.members.values() if member.works]
        busy = any(member.turn or member.inbox or member.abandoned for member in works)
        return busy or bool(self.works and self._waiting.produces)

    async def freeze(self) -> None:
        """Take no more requests, and finish what runs: what is counted then stays so."""
        self._refusal = lambda: RetryRequest("queue is being deleted", f"'{self.queue.name}' takes no requests now")
        await self._finish()

    def thaw(self) -> None:
        if not self._leaving:
            self._refusal = None

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something as long as this logical queue lives."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("logical queue task failed", queue=self.queue.name, exc_info=error)

    def update(self, queue: Queue, limits: Limits | None = None) -> None:
        """New settings, new limits. They hold from the next turn on."""
        self.queue = queue
        self.limits = self._waiting.limits = limits or self.limits
        self.wake()

    # The hot calls.

    def produce(
        self, items: list[Item], scheduled: list[Scheduled], size: int, timeout_ms: int
    ) -> asyncio.Future[Produced]:
        if self.queue.produce_paused:
            raise RetryRequest("queue is paused", f"'{self.queue.name}' takes no items now")
        self._waiting.check_room_for_produce(self.queue.name)
        future: asyncio.Future[Produced] = self._loop.create_future()
        self._waiting.produces.append(Produce(self._deadline(timeout_ms), future, items, scheduled, size))
        self.wake()
        return future

    def reserve(
        self, batch_size: int, client_id: str, timeout_ms: int, lease_timeout_ms: int
    ) -> asyncio.Future[Reservation]:
        self._waiting.check_room_for_reserve(self.queue.name)
        future: asyncio.Future[Reservation] = self._loop.create_future()
        request = Reserve(self._deadline(timeout_ms), future, batch_size, client_id, lease_timeout_ms)
        self._waiting.add_reserve(request)
        self.wake()
        return future

    def complete(self, partition: int, ids: list[str], timeout_ms: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        return self.submit(partition, Complete(self._deadline(timeout_ms), future, partition, ids), future)

    def retry(self, partition: int, items: list[RetryItem], timeout_ms: int) -> asyncio.Future[None]:
        return self.request(partition, lambda future: Retry(self._deadline(timeout_ms), future, partition, items))

    def renew(self, partition: int, ids: list[str], timeout_ms: int, lease_timeout_ms: int) -> asyncio.Future[int]:
        deadline_ms = self._deadline(timeout_ms)
        return self.request(partition, lambda future: Renew(deadline_ms, future, partition, ids, lease_timeout_ms))

    def take_back(self, partition: int, ids: list[str]) -> None:
        """End the leases of items whose consumer has not heard of them."""
        self.member(partition).take_back(ids)
        self.wake()

    def deliver(self, partition: int, source_uid: int, entries: list[tuple[int, Item]]) -> asyncio.Future[None]:
        """Take items from another partition's outbox."""
        return self.request(partition, lambda future: Deliver(future, partition, source_uid, entries))

    def submit(self, partition: int, request: Request, future: asyncio.Future[T]) -> asyncio.Future[T]:
        """Put a request that names its partition into the inbox there."""
        member = self.member(partition)
        if member.status is not Status.AVAILABLE:
            raise PartitionFailing(self.queue.name, partition)
        if len(member.inbox) >= self.limits.waiting_requests:
            raise Overloaded(f"too many requests wait for partition {partition} of '{self.queue.name}'")
        if self._refusal is not None:
            raise self._refusal()
        member.inbox.append(request)
        self.wake()
        return future

    def request(self, partition: int, make: Callable[[asyncio.Future[Any]], Request]) -> asyncio.Future[Any]:
        """Submit a request of the rare kind."""
        future: asyncio.Future[Any] = self._loop.create_future()
        return self.submit(partition, make(future), future)

    def member(self, partition: int) -> Member:
        member = self.members.get(partition)
        if member is None:
            raise InvalidRequest("partition is invalid", f"'{self.queue.name}' has no partition {partition}")
        return member

    def _deadline(self, timeout_ms: int) -> int:
        if self._refusal is not None:
            raise self._refusal()
        deadline_ms = self.clock.now_ms() + timeout_ms
        self._next_deadline_ms = min(self._next_deadline_ms, deadline_ms)
        return deadline_ms

    # The turn.

    def wake(self) -> None:
        """Let a turn come soon."""
        if not self._turn_is_coming:
            self._turn_is_coming = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_coming = False
        if self._closed:
            return
        now_ms = self.clock.now_ms()
        if self._next_deadline_ms <= now_ms:
            self._time_out(now_ms)
        free = [member for member in self.members.values() if member.free]
        if free:
            self._waiting.distribute(free, reserving=not self.queue.reserve_paused)
            for member in free:
                self._begin(member, now_ms)
        if self._leaving and self._refusal is not None:
            self._waiting.send_away(self.on_leave, self._refusal())
        elif self.on_turn is not None and (free or not self.works):
            self.on_turn()
        self._arm(now_ms)
        self._turned.set()

    def _begin(self, member: Member, now_ms: int) -> None:
        """Make a turn of what waits for one partition, and commit it."""
        self._read_what_is_missing(member, now_ms)
        if not member.has_work(now_ms):
            return
        turn = Turn(member.state, self.queue.settings, now_ms, self._rng)
        try:
            batch = self._plan(member, turn)
        except Exception:  # noqa: BLE001 - a defect: nothing of this turn can be trusted, and nobody may wait for it
            _log.exception("turn failed", queue=self.queue.name, partition=member.number)
            given = [*member.produces, *(reserve for reserve, _ in member.reserves), *member.inbox, *turn.requests]
            refuse(given, InternalError())
            batch = None
        member.produces, member.reserves = [], []
        if batch is not None:
            member.turn = turn
            self.spawn(self._commit(member, turn, batch))

    def _plan(self, member: Member, turn: Turn) -> Batch | None:
        """Decide; None if nothing is to be written, and everybody is answered already."""
        if "bodies" not in member.reading:
            member.state.let_go()
        for produce in member.produces:
            turn.add(produce)
        if member.inbox:
            for block_ids in member.empty_inbox(turn):
                self._read_bodies(member, block_ids)
        member.abandoned = [lease for lease in member.abandoned if lease.slots]
        for lease in member.abandoned:
            turn.take_back(lease)
        if member.state.has_due(turn.now_ms):
            turn.add_due()
        if turn.unread:
            self._read_bodies(member, turn.unread)
        if member.abandoned:  # what they take back comes first, in the next turn
            self._waiting.put_back([reserve for reserve, _ in member.reserves])
        else:
            self._waiting.put_back(turn.fill(member.reserves))
        batch = turn.batch()
        if batch is None:
            turn.answer()
        return batch

    async def _commit(self, member: Member, turn: Turn, batch: Batch) -> None:
        try:
            with self._observer.commit(self.queue.name, turn, batch):
                await member.state.stored.commit(batch)
        except Fenced:
            self._undo(member, turn)
            self._lose(member)
        except OutcomeUnknown as error:
            self._fail(member, error)
        except StorageError as error:
            self._undo(member, turn)
            self._fail(member, error)
        except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is unknown
            _log.exception("commit failed unexpectedly", queue=self.queue.name, partition=member.number)
            self._fail(member, OutcomeUnknown(repr(error)))
        else:
            self._land(member, turn)
            return
        self._turn()

    def _land(self, member: Member, turn: Turn) -> None:
        """Change the memory, begin the next turn, and only then answer: it is written while answers are encoded."""
        turn.apply()
        member.end_turn()
        member.abandoned.extend(turn.abandoned())  # the next turn gives these back, before it hands out what is behind
        self.progress.set()
        self._turn()
        turn.answer()

    def _undo(self, member: Member, turn: Turn) -> None:
        """Nothing was written: produces and reserves try elsewhere, the others are told."""
        member.end_turn()
        self._waiting.put_back(turn.requests)
        others = (request for request in turn.requests if not isinstance(request, Produce | Reserve))
        refuse(others, PartitionFailing(self.queue.name, member.number))

    # Failing partitions.

    def _fail(self, member: Member, error: StorageError, *, rebuild: bool = False) -> None:
        member.failures += 1
        member.status = Status.FAILING
        _log.warning("partition is failing", queue=self.queue.name, partition=member.number, error=str(error))
        self._waiting.take_over(member.waiting())
        refuse(member.inbox, PartitionFailing(self.queue.name, member.number))
        member.inbox.clear()
        self.spawn(self._recover(member, rebuild=rebuild))

    async def _recover(self, member: Member, *, rebuild: bool) -> None:
        """Open the partition again, until it works; then it is known whether the last commit landed."""
        delay_ms = 0 if member.turn is not None else _REOPEN_FIRST_MS
        while True:
            await sleep_ms(self.clock, round(delay_ms * self._rng.uniform(0.8, 1.2)))
            try:
                await self._reopen(member, rebuild=rebuild)
            except Fenced:
                self._lose(member)
                return
            except StorageError as error:
                delay_ms = min(_REOPEN_LAST_MS, max(_REOPEN_FIRST_MS, 2 * delay_ms))
                _log.info("partition still fails", queue=self.queue.name, partition=member.number, error=str(error))
            else:
                member.status = Status.AVAILABLE
                _log.info("partition is available again", queue=self.queue.name, partition=member.number)
                self.progress.set()
                self.wake()
                return

    async def _reopen(self, member: Member, *, rebuild: bool) -> None:
        state, turn = member.state, member.turn
        if rebuild:
            await state.open()
            return
        opened = await state.stored.open(state.place.epoch)
        if turn is not None and opened.number == state.commit_number + 1:
            self._land(member, turn)
            return
        assert opened.number == state.commit_number, "nobody else commits under our epoch"
        if turn is not None:
            self._undo(member, turn)

    async def rebuild(self, member: Member) -> None:
        """Forget what is in memory of a partition and read it again."""
        member.status = Status.UNAVAILABLE
        while member.turn is not None or member.reading:
            member.news.clear()
            await member.news.wait()
        await self._open(member)
        self.wake()

    def _lose(self, member: Member) -> None:
        """Another owner has the partition; whatever we think of it is worth nothing."""
        member.status = Status.UNAVAILABLE
        self._observer.lost(member.state.place)
        _log.warning("partition was taken over", queue=self.queue.name, partition=member.number)
        refuse(member.in_doubt(), ProduceInDoubt())
        refuse(member.waiting(), PartitionFailing(self.queue.name, member.number))
        member.forget()

    # Reading in the background.

    def _read_what_is_missing(self, member: Member, now_ms: int) -> None:
        state = member.state
        if state.wants_to_read_ahead() and "ahead" not in member.reading:
            self._read(member, "ahead", state.read_ahead)
        if state.next_due_ms <= now_ms and not state.due and "due" not in member.reading:
            self._read(member, "due", lambda: state.read_due(now_ms))

    def _read_bodies(self, member: Member, block_ids: set[int]) -> None:
        if "bodies" not in member.reading:
            self._read(member, "bodies", lambda: member.state.read_bodies(block_ids))

    def _read(self, member: Member, what: str, read: Callable[[], Awaitable[None]]) -> None:
        member.reading.add(what)
        self.spawn(self._finish_reading(member, what, read))

    async def _finish_reading(self, member: Member, what: str, read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        except StorageError as error:
            if member.free:
                self._fail(member, error)
        finally:
            member.reading.discard(what)
            member.news.set()
        self.wake()

    # Time.

    def _arm(self, now_ms: int) -> None:
        """Wake up when something is due."""
        when_ms = min((member.next_event_ms() for member in self.members.values() if member.free), default=NEVER_MS)
        self._alarm.set(max(min(when_ms, self._next_deadline_ms), now_ms + 1))

    def _unanswered(self) -> Iterator[Request]:
        return chain(self._waiting, *(member.waiting() for member in self.members.values()))

    def _time_out(self, now_ms: int) -> None:
        """Answer the requests whose deadline has passed, and find the next deadline."""
        waiting = list(self._unanswered())
        in_doubt = {produce for member in self.members.values() for produce in member.in_doubt()}
        nowhere = f"no partition of '{self.queue.name}' can be used now"
        next_deadline_ms = NEVER_MS
        for request in waiting:
            if request.deadline_ms > now_ms:
                next_deadline_ms = min(next_deadline_ms, request.deadline_ms)
            elif not request.future.done():
                late = ProduceInDoubt() if request in in_doubt else TimedOut(request.late if self.works else nowhere)
                request.future.set_exception(late)
        # Where very many wait, a deadline may be late by a little, so that looking for it stays cheap.
        self._next_deadline_ms = max(next_deadline_ms, now_ms + len(waiting) // _LOOKED_AT_PER_MS)
        self._waiting.drop_answered()

    # Sight.

    @property
    def works(self) -> bool:
        """Whether at least one partition can be used."""
        return any(member.works for member in self.members.values())

    def unfilled(self) -> list[asyncio.Future[Reservation]]:
        """Of the reserves that wait because nothing was ready for them."""
        return [reserve.future for reserve in self._waiting.reserves]

    def ready(self) -> int:
        """How many items could be reserved now."""
        return sum(member.state.ready for member in self.members.values() if member.works)

    def stats(self) -> LogicalQueueStats:
        now_ms = self.clock.now_ms()
        members = list(self.members.values())
        return LogicalQueueStats(
            produce_waiting=len(self._waiting.produces),
            reserve_waiting=len(self._waiting.reserves),
            complete_waiting=sum(len(member.inbox) for member in members),
            in_flight=sum(len(member.turn.requests) for member in members if member.turn is not None),
            partitions=[member.stats(now_ms) for member in members],
        )
