"""The client for programs without asyncio: the methods of `querator.client.Client`, each of which blocks.

The calls run on an event loop in a thread of its own, so that a `SyncClient` may be shared by any number of threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from querator import wire
from querator.client import PAGE, Client
from querator.client_items import Produceable
from querator.client_times import DurationLike
from querator.producer import Producer

P = ParamSpec("P")
R = TypeVar("R")


class _LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="querator-client", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def submit(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        if self.is_closed:
            work.close()
            raise RuntimeError("the client is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            # Of the call itself, or an interrupt of the waiting thread: then the call must not go on unseen.
            future.cancel()
            raise

    def close(self) -> None:
        if self.is_closed:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Blocking(Generic[P, R]):
    """A method of `Client` as one that blocks, with the same signature."""

    def __init__(self, method: Callable[Concatenate[Client, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, owner: None, kind: type[SyncClient]) -> Self: ...
    @overload
    def __get__(self, owner: SyncClient, kind: type[SyncClient]) -> Callable[P, R]: ...
    def __get__(self, owner: SyncClient | None, kind: type[SyncClient]) -> Self | Callable[P, R]:
        if owner is None:
            return self
        method = self._method

        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return owner.run(method(owner.client, *args, **kwargs))

        return call


class SyncClient:
    """Takes what `Client` takes; every method is described there."""

    produce = _Blocking(Client.produce)
    reserve = _Blocking(Client.reserve)
    complete = _Blocking(Client.complete)
    retry = _Blocking(Client.retry)
    renew = _Blocking(Client.renew)
    create_queue = _Blocking(Client.create_queue)
    update_queue = _Blocking(Client.update_queue)
    delete_queue = _Blocking(Client.delete_queue)
    list_queues = _Blocking(Client.list_queues)
    queue_info = _Blocking(Client.queue_info)
    stats = _Blocking(Client.stats)
    clear = _Blocking(Client.clear)
    reload = _Blocking(Client.reload)
    pause = _Blocking(Client.pause)
    resume = _Blocking(Client.resume)
    list_items = _Blocking(Client.list_items)
    list_scheduled = _Blocking(Client.list_scheduled)
    import_items = _Blocking(Client.import_items)
    delete_items = _Blocking(Client.delete_items)
    cluster_info = _Blocking(Client.cluster_info)
    cluster_route = _Blocking(Client.cluster_route)
    health = _Blocking(Client.health)

    def __init__(
        self,
        *addresses: str,
        timeout: DurationLike = 30.0,
        retry_unknown: bool = False,
        client_id: str = "",
        connections: int = 100,
        direct: bool | None = None,
        connect_timeout: DurationLike = 5.0,
    ) -> None:
        self.client = Client(
            *addresses,
            timeout=timeout,
            retry_unknown=retry_unknown,
            client_id=client_id,
            connections=connections,
            direct=direct,
            connect_timeout=connect_timeout,
        )
        self._thread = _LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread. Closing twice is allowed."""
        if not self._thread.is_closed:
            self._thread.run(self.client.close())
            self._thread.close()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on this client's loop, and wait for it."""
        return self._thread.run(work)

    def iter_queues(self, *, namespace: str = "", page: int = PAGE) -> Iterator[wire.QueueInfo]:
        return self._iterate(self.client.iter_queues(namespace=namespace, page=page))

    def iter_logical_queues(self, *, page: int = PAGE) -> Iterator[wire.LogicalQueueInfo]:
        return self._iterate(self.client.iter_logical_queues(page=page))

    def iter_items(self, queue_name: str, partition: int = 0, *, page: int = PAGE) -> Iterator[wire.StorageItem]:
        return self._iterate(self.client.iter_items(queue_name, partition, page=page))

    def iter_scheduled(self, queue_name: str, partition: int = 0, *, page: int = PAGE) -> Iterator[wire.StorageItem]:
        return self._iterate(self.client.iter_scheduled(queue_name, partition, page=page))

    def producer(
        self,
        queue_name: str,
        *,
        linger: DurationLike = "5ms",
        max_items: int = 1000,
        max_bytes: int = 1_000_000,
        max_requests: int = 4,
        max_waiting: int = 20_000,
        timeout: DurationLike | None = None,
    ) -> SyncProducer:
        """Gathers what many threads produce into few requests; see `Producer`."""
        producer = self.client.producer(
            queue_name,
            linger=linger,
            max_items=max_items,
            max_bytes=max_bytes,
            max_requests=max_requests,
            max_waiting=max_waiting,
            timeout=timeout,
        )
        return SyncProducer(producer, self._thread)

    def _iterate(self, source: AsyncIterator[R]) -> Iterator[R]:
        async def advance() -> tuple[R] | None:
            async for one in source:
                return (one,)
            return None

        while (found := self.run(advance())) is not None:
            yield found[0]


class SyncProducer:
    """`Producer` for threads. `produce` blocks until its item is durable; `submit` does not wait."""

    def __init__(self, producer: Producer, thread: _LoopThread) -> None:
        self._producer = producer
        self._thread = thread

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def produce(self, item: Produceable) -> str:
        return self._thread.run(self._producer.produce(item))

    def submit(self, item: Produceable) -> Future[str]:
        """A future that has the item's id once the item is durable."""
        return self._thread.submit(self._producer.produce(item))

    def flush(self) -> None:
        self._thread.run(self._producer.flush())

    def close(self) -> None:
        """Send what waits, and take no more. Closing twice is allowed."""
        self._thread.run(self._producer.close())
