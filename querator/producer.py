"""The batching producer: many single produces become few requests."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from querator import wire
from querator.client_items import Produceable, wire_item
from querator.client_times import DurationLike
from querator.errors import InvalidRequest, NoSuchQueue, QueratorError, RequestFailed

if TYPE_CHECKING:
    from querator.client import Client


class _Waiting(NamedTuple):
    item: wire.ProduceItem
    size: int
    future: asyncio.Future[str]


class Producer:
    """Gathers what is produced within ``linger``, or until a request is full, and sends it together.

    `produce` returns once its item is durable. At most ``max_waiting`` items are in here; a further `produce` waits
    for room. Items keep their order within a request; with ``max_requests`` above 1, two requests may overtake
    each other. Leaving ``async with`` sends what waits.
    """

    def __init__(
        self,
        client: Client,
        queue_name: str,
        *,
        linger_s: float,
        max_items: int,
        max_bytes: int,
        max_requests: int,
        max_waiting: int,
        timeout: DurationLike | None,
    ) -> None:
        if min(max_items, max_bytes, max_requests, max_waiting) < 1:
            raise ValueError("max_items, max_bytes, max_requests and max_waiting must be at least 1")
        self._client = client
        self._queue_name = queue_name
        self._linger_s = linger_s
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_requests = max_requests
        self._timeout = timeout
        self._room = asyncio.Semaphore(max_waiting)
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._requests: set[asyncio.Task[None]] = set()
        self._linger: asyncio.TimerHandle | None = None
        self._is_due = False  # whether what waits has waited long enough
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def produce(self, item: Produceable) -> str:
        """Store an item together with others; returns its id (empty if the server tells none) once it is durable.

        Cancelling takes the item back if it was not sent yet.
        """
        message = wire_item(item)
        size = len(message.payload) or len(message.utf8.encode())
        if size > self._max_bytes:
            raise ValueError(f"payload is too large; {size} bytes are more than the producer's {self._max_bytes}")
        async with self._room:
            if self._closed:
                raise RequestFailed("producer is closed", f"of queue '{self._queue_name}'")
            future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._waiting.append(_Waiting(message, size, future))
            self._waiting_bytes += size
            self._send_full()
            return await future

    async def flush(self) -> None:
        """Send what waits now, and return when all of it is answered. The callers of `produce` get the errors."""
        self._is_due = True
        self._send_due()
        while self._requests:
            await asyncio.wait(self._requests)

    async def close(self) -> None:
        """Flush, and take no more. Closing twice is allowed."""
        self._closed = True
        await self.flush()

    def _send_full(self) -> None:
        if len(self._waiting) >= self._max_items or self._waiting_bytes >= self._max_bytes:
            self._send_due()
        elif self._linger is None and not self._is_due:
            self._linger = asyncio.get_running_loop().call_later(self._linger_s, self._end_linger)

    def _end_linger(self) -> None:
        self._linger = None
        self._is_due = True
        self._send_due()

    def _send_due(self) -> None:
        """Start requests while there are slots, and something that fills one or has waited long enough."""
        while self._waiting and len(self._requests) < self._max_requests:
            is_full = len(self._waiting) >= self._max_items or self._waiting_bytes >= self._max_bytes
            if not (is_full or self._is_due):
                return
            batch = self._take()
            if batch:
                task = asyncio.get_running_loop().create_task(self._send(batch))
                self._requests.add(task)
                task.add_done_callback(self._end_request)
        if not self._waiting:
            self._rest()

    def _rest(self) -> None:
        self._is_due = False
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _end_request(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        self._send_due()

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and len(batch) < self._max_items:
            if batch and size + self._waiting[0].size > self._max_bytes:
                break
            waiting = self._waiting.popleft()
            self._waiting_bytes -= waiting.size
            if not waiting.future.done():  # its caller was cancelled
                batch.append(waiting)
                size += waiting.size
        return batch

    async def _send(self, batch: list[_Waiting]) -> None:
        """Send a batch and tell each caller. What is refused is halved, so that one bad item harms no other."""
        request = wire.ProduceRequest(queue_name=self._queue_name, items=[waiting.item for waiting in batch])
        try:
            produced = await self._client.produce_wire(request, timeout=self._timeout)
        except InvalidRequest as error:
            if len(batch) == 1 or isinstance(error, NoSuchQueue):
                _fail(batch, error)
                return
            middle = len(batch) // 2
            await self._send(batch[:middle])
            await self._send(batch[middle:])
        except QueratorError as error:
            _fail(batch, error)
        except BaseException as error:
            _fail(batch, RequestFailed("producer was stopped", type(error).__name__))
            raise
        else:
            ids = produced.ids if len(produced.ids) == len(batch) else [""] * len(batch)
            for waiting, item_id in zip(batch, ids, strict=True):
                if not waiting.future.done():
                    waiting.future.set_result(item_id)


def _fail(batch: list[_Waiting], error: QueratorError) -> None:
    for waiting in batch:
        if not waiting.future.done():
            waiting.future.set_exception(error)
