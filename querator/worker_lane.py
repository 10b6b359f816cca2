"""One handler of a worker at work: it fetches items, runs the handler, keeps the leases, and settles."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from random import Random

from querator.client import Client
from querator.client_items import ReservedItem
from querator.client_times import duration_s
from querator.client_tracing import handler_span, last_call
from querator.errors import NotLeased, QueratorError
from querator.transport import Backoff
from querator.worker_items import AT_ONCE, Back, Done, Held, Reject, RetryLater, Settler, log, named_in

# How often within the time of a lease it is renewed, and how often that is looked at.
_RENEWALS_PER_LEASE = 3
_ROUNDS_PER_LEASE = 9

_DEFAULT_LEASE_S = 60.0
_POLL_S = 60.0  # how long one reserve waits for items
_MAX_UNSETTLED = 1000  # no more items are fetched while so many wait to be settled
_BACKOFF = Backoff(base_s=0.2, max_s=10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function and how it is to be fed."""

    queue_name: str
    function: Callable[[ReservedItem], Awaitable[object] | object]
    is_async: bool
    concurrency: int
    batch_size: int
    lease_s: float | None  # None: the queue's


class Lane:
    """Runs one handler until it is told to stop. Its tasks are all in one group, which ends with it."""

    def __init__(self, client: Client, handler: Handler, threads: Executor, random: Random) -> None:
        self._client = client
        self._handler = handler
        self._queue_name = handler.queue_name
        self._threads = threads
        self._random = random
        self._capacity = max(handler.concurrency, handler.batch_size)
        self._lease_s = 0.0
        self._knows_lease = asyncio.Event()
        self._waiting: deque[Held] = deque()
        self._running: set[Held] = set()
        self._has_room = asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._settler = Settler(client, self._group.create_task, self._has_room.set)

    async def run(self, stopping: asyncio.Event, hurry: asyncio.Event, grace_s: float) -> None:
        """Work until ``stopping``; then finish what runs within the grace, or until ``hurry``.

        Raises the error that makes further work pointless, such as `NoSuchQueue`, after the same careful end.
        """
        async with self._group as group:
            fetching = group.create_task(self._fetch_all())
            renewing = group.create_task(self._keep_leases())
            stop = group.create_task(stopping.wait())
            await asyncio.wait((fetching, stop), return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            fetching.cancel()
            await asyncio.wait((fetching,))
            await self._finish(hurry, grace_s)
            renewing.cancel()
        failure = None if fetching.cancelled() else fetching.result()
        if failure is not None:
            raise failure

    async def _fetch_all(self) -> QueratorError:
        """Reserve whenever there is room; returns the error that ends it."""
        failures = 0
        while True:
            try:
                if not self._knows_lease.is_set():
                    await self._learn_lease()
                await self._fetch()
                failures = 0
            except QueratorError as error:
                if not error.retryable:
                    return error
                delay_s = _BACKOFF.delay_s(failures, self._random)
                failures += 1
                log.warning("cannot reserve from '%s', trying again in %.1f s: %s", self._queue_name, delay_s, error)
                await asyncio.sleep(delay_s)

    async def _learn_lease(self) -> None:
        lease_s = self._handler.lease_s
        if lease_s is None:
            info = await self._client.queue_info(self._queue_name)
            lease_s = duration_s(info.lease_timeout or _DEFAULT_LEASE_S)
        self._lease_s = lease_s
        self._knows_lease.set()

    async def _fetch(self) -> None:
        while (count := self._room()) < 1:
            self._has_room.clear()
            await self._has_room.wait()
        # The lease is named, so that its length is known here, whatever becomes of the queue's settings.
        batch = await self._client.reserve(self._queue_name, count, timeout=_POLL_S, lease_timeout=self._lease_s)
        now = asyncio.get_running_loop().time()
        reserved = last_call()
        self._waiting.extend(Held(item, renewed_at=now, reserved=reserved) for item in batch)
        self._dispatch()

    def _room(self) -> int:
        if self._settler.backlog >= _MAX_UNSETTLED:
            return 0
        return min(self._handler.batch_size, self._capacity - len(self._waiting) - len(self._running))

    def _dispatch(self) -> None:
        while self._waiting and len(self._running) < self._handler.concurrency:
            held = self._waiting.popleft()
            self._running.add(held)
            held.task = self._group.create_task(self._handle(held))

    async def _handle(self, held: Held) -> None:
        try:
            verdict = await self._verdict(held)
        finally:
            self._running.discard(held)
            self._has_room.set()
            self._dispatch()
        if not held.is_lost:
            self._settler.settle(held.item, verdict)

    async def _verdict(self, held: Held) -> Done | Back:
        try:
            with handler_span(held.item, held.reserved):
                await self._call(held.item)
        except Reject as reason:
            log.warning("%s of '%s' was rejected: %s", held.item.id, self._queue_name, reason)
            return Back(dead=True)
        except RetryLater as later:
            return Back(later.delay, at=later.at)
        except asyncio.CancelledError:
            if not (held.is_let_go or held.is_lost):
                raise
            return AT_ONCE
        except Exception:  # noqa: BLE001  whatever a handler raises means that its item was not done
            log.exception("the handler of '%s' failed on %s, which will be retried", self._queue_name, held.item.id)
            return Back()
        return Done()

    async def _call(self, item: ReservedItem) -> None:
        if self._handler.is_async:
            result = self._handler.function(item)
        else:
            # As asyncio.to_thread does, but on the worker's own threads.
            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._threads, context.run, self._handler.function, item)
        if inspect.isawaitable(result):
            await result

    async def _keep_leases(self) -> None:
        """Renew all that is held, waiting or running, well before its lease ends."""
        loop = asyncio.get_running_loop()
        await self._knows_lease.wait()
        while True:
            await asyncio.sleep(self._lease_s / _ROUNDS_PER_LEASE)
            due_at = loop.time() - self._lease_s / _RENEWALS_PER_LEASE
            due = [held for held in (*self._waiting, *self._running) if held.renewed_at <= due_at and not held.is_lost]
            places = {held.item.partition for held in due}
            await asyncio.gather(
                *(self._renew(place, [held for held in due if held.item.partition == place]) for place in places)
            )

    async def _renew(self, partition: int, due: list[Held]) -> None:
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        ids = [held.item.id for held in due]
        try:
            await self._client.renew(
                self._queue_name,
                partition,
                ids,
                lease_timeout=self._lease_s,
                timeout=self._lease_s / _RENEWALS_PER_LEASE,
            )
        except NotLeased as error:
            # The others are still due, and are renewed in the next round.
            lost = named_in(error, (held.item for held in due)) or set(ids)
            for held in due:
                if held.item.id in lost:
                    self._lose(held, error)
        except QueratorError as error:
            log.warning("cannot renew leases of '%s': %s", self._queue_name, error)
            for held in due:
                if loop.time() - held.renewed_at >= self._lease_s:
                    self._lose(held, error)
        else:
            for held in due:
                held.renewed_at = sent_at

    def _lose(self, held: Held, error: QueratorError) -> None:
        """Another consumer may have the item by now: what is done here no longer counts."""
        if held in self._waiting:
            self._waiting.remove(held)
            self._has_room.set()
        elif held not in self._running:
            return  # settled meanwhile
        held.is_lost = True
        log.warning("the lease of %s of '%s' was lost: %s", held.item.id, self._queue_name, error)
        if held.task is not None and self._handler.is_async:
            held.task.cancel()

    async def _finish(self, hurry: asyncio.Event, grace_s: float) -> None:
        while self._waiting:
            self._settler.settle(self._waiting.popleft().item, AT_ONCE)
        await self._wait_for_running(hurry, grace_s)
        stopped = [held.task for held in self._running if held.task is not None]
        for held in self._running:
            self._let_go(held)
        if stopped:
            await asyncio.wait(stopped)
        await self._settler.drain()

    async def _wait_for_running(self, hurry: asyncio.Event, grace_s: float) -> None:
        running = [held.task for held in self._running if held.task is not None]
        if not running:
            return
        all_done = self._group.create_task(_all_done(running))
        hurried = self._group.create_task(hurry.wait())
        await asyncio.wait((all_done, hurried), timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        all_done.cancel()
        hurried.cancel()

    def _let_go(self, held: Held) -> None:
        if self._handler.is_async:
            held.is_let_go = True
            log.warning("%s of '%s' is given back: its handler did not end in time", held.item.id, self._queue_name)
        else:
            # A thread cannot be stopped: the item must not be handed out while it still may be worked on.
            held.is_lost = True
            log.warning(
                "%s of '%s' comes back when its lease ends: its handler did not end in time",
                held.item.id,
                self._queue_name,
            )
        if held.task is not None:
            held.task.cancel()


async def _all_done(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
