"""The worker: functions that handle the items of queues, with everything around them done.

Nobody needs it: a queue can be consumed by plain calls of the client.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random, SystemRandom
from typing import TypeVar

from querator.client import Client
from querator.client_items import ReservedItem
from querator.client_times import DurationLike, duration_s
from querator.worker_items import Reject, RetryLater, log
from querator.worker_lane import Handler, Lane

__all__ = ["Reject", "RetryLater", "Worker"]

F = TypeVar("F", bound=Callable[[ReservedItem], Awaitable[object] | object])


class Worker:
    """Runs handlers until it is stopped by `stop`, SIGINT or SIGTERM.

    A handler that returns completes its item. One that raises gives it back as the queue's retry policy says;
    `RetryLater` names the time, `Reject` sends it to the dead queue. While a handler runs its lease is renewed; if the
    lease is lost all the same, an async handler is cancelled, and nothing that it did is reported.

    Handlers may be async functions, which share the event loop, or plain ones, which run in threads.
    """

    def __init__(
        self,
        client: Client | str | None = None,
        *addresses: str,
        grace: DurationLike = 30.0,
        handle_signals: bool = True,
        random: Random | None = None,
    ) -> None:
        """``client`` is one that the caller closes, or the first of the addresses for one of the worker's own."""
        if isinstance(client, Client):
            if addresses:
                raise TypeError("a worker takes a client or addresses, not both")
            self._client = client
        else:
            self._client = Client(*(() if client is None else (client,)), *addresses)
        self._owns_client = not isinstance(client, Client)
        self._grace_s = duration_s(grace, "grace")
        self._handle_signals = handle_signals
        self._random = random or SystemRandom()
        self._handlers: dict[str, Handler] = {}
        self._stopping: asyncio.Event | None = None
        self._hurry: asyncio.Event | None = None

    def handler(
        self,
        queue_name: str,
        *,
        concurrency: int = 10,
        batch_size: int | None = None,
        lease_timeout: DurationLike | None = None,
    ) -> Callable[[F], F]:
        """Register a function for the items of a queue.

        Up to ``concurrency`` calls run at once. ``batch_size`` is what one reserve asks for at most; it is by default
        the concurrency, so that no item waits here while another worker is free.
        """
        size = concurrency if batch_size is None else batch_size
        if concurrency < 1 or size < 1:
            raise ValueError("concurrency and batch_size must be at least 1")
        if queue_name in self._handlers:
            raise ValueError(f"queue '{queue_name}' has a handler already")

        def register(function: F) -> F:
            self._handlers[queue_name] = Handler(
                queue_name=queue_name,
                function=function,
                is_async=inspect.iscoroutinefunction(function),
                concurrency=concurrency,
                batch_size=size,
                lease_s=None if lease_timeout is None else duration_s(lease_timeout, "lease_timeout"),
            )
            return function

        return register

    def run(self) -> None:
        """Work until stopped, on an event loop of its own."""

        async def work() -> None:
            try:
                await self.serve()
            finally:
                await self._client.close()

        asyncio.run(work())

    async def serve(self) -> None:
        """Work until stopped, on the running event loop.

        Raises the error of a handler's queue that no waiting would mend, such as `NoSuchQueue`, after stopping.
        """
        if not self._handlers:
            raise ValueError("a worker needs at least one handler")
        self._stopping = stopping = asyncio.Event()
        self._hurry = hurry = asyncio.Event()
        plain = sum(handler.concurrency for handler in self._handlers.values() if not handler.is_async)
        threads = ThreadPoolExecutor(max(1, plain), thread_name_prefix="querator-worker")
        lanes = [Lane(self._client, handler, threads, self._random) for handler in self._handlers.values()]

        async def run(lane: Lane) -> None:
            try:
                await lane.run(stopping, hurry, self._grace_s)
            finally:
                stopping.set()

        try:
            with self._signals():
                outcomes = await asyncio.gather(*(run(lane) for lane in lanes), return_exceptions=True)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            if self._owns_client:
                await self._client.close()
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def stop(self) -> None:
        """Stop: fetch no more, give back what was not started, and let what runs end within the grace.

        A second call ends the grace. To be called from the worker's event loop.
        """
        if self._stopping is None or self._hurry is None:
            return
        if self._stopping.is_set():
            self._hurry.set()
        else:
            log.info("stopping")
            self._stopping.set()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if not self._handle_signals or threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
