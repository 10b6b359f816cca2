"""The consumer: items come by themselves over gRPC, and are completed on the same stream.

Needs `querator[grpc]`, which is loaded when a stream is opened (docs/adr/0008).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from yarl import URL

from querator import wire
from querator.client_items import Reserved, ReservedItem, RetryItem, hold_of
from querator.client_times import DurationLike, duration_text
from querator.clock import Clock
from querator.consume_calls import Ack, Asked, Opening, Received, StreamRequest, ids_of
from querator.errors import NotLeased, QueratorError, TransportError
from querator.transport import Backoff, parse_address

if TYPE_CHECKING:
    from querator.consume_link import Link

_log = logging.getLogger("querator.client")

_AT_ONCE: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CLOSE_S: Final = 5.0  # for giving back what was not taken
_MAX_IDS: Final = 1000  # in one message, but for a single call that has more


def grpc_addresses(named: Sequence[str], addresses: Sequence[str]) -> list[URL]:
    """Where gRPC is: as named, or else at the port that follows that of HTTP, as by default."""
    if named:
        return [parse_address(address) for address in named]
    urls = [parse_address(address) for address in addresses]
    return [url.with_port((url.port or 0) + 1) for url in urls]


class Consumer:
    """Items of one queue as they get ready, never more unanswered than ``max_in_flight``.

    Several tasks may iterate and answer. A stream that is lost is opened again, at the next address if there is one;
    items that were taken from it can still be answered, and calls that were not acknowledged are sent again.
    """

    def __init__(
        self,
        addresses: Sequence[URL],
        opening: Opening,
        *,
        timeout_s: float,
        backoff: Backoff,
        random: Random,
        clock: Clock,
    ) -> None:
        self._addresses = addresses
        self._opening = opening
        self._timeout_s = timeout_s
        self._backoff = backoff
        self._random = random
        self._clock = clock
        self._sequences = itertools.count(1)
        self._items: deque[ReservedItem] = deque()  # that nobody has taken
        self._held: dict[str, ReservedItem] = {}  # that are not answered, those among them
        self._unacknowledged: dict[int, Asked] = {}
        self._outgoing: deque[Asked] = deque()
        self._wake = asyncio.Event()  # there is something to write
        self._changed = asyncio.Event()  # items came, or the stream's state is another
        self._opened = False
        self._linked = False
        self._closing = False
        self._finishing = False
        self._failure: Exception | None = None  # what no waiting mends
        self._last_error: QueratorError | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Returns once a server has accepted the stream; raises if none does within the client's timeout."""
        link = _load_link()
        self._task = asyncio.get_running_loop().create_task(self._run(link))
        try:
            async with asyncio.timeout(self._timeout_s):
                while not self._opened:
                    self._raise_failure()
                    await self._change()
        except TimeoutError:
            await self.close()
            raise self._last_error or TransportError("server did not answer", "the stream was not opened") from None
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReservedItem:
        """The next item; ends when the consumer is closed, raises what ended the stream for good."""
        while not self._items:
            if self._closing:
                raise StopAsyncIteration
            self._raise_failure()
            await self._change()
        return self._items.popleft()

    async def complete(self, what: Reserved) -> None:
        """The work is done: remove the items, of one partition. All or nothing; raises `NotLeased`, which names one."""
        hold = hold_of(what, None, None)
        await self._ask(wire.CompleteRequest(partition=hold.partition, ids=hold.ids))

    async def retry(
        self,
        what: Reserved,
        *,
        at: datetime | None = None,
        delay: DurationLike | None = None,
        dead: bool = False,
    ) -> None:
        """Give items back, of one partition: as the queue's policy says, ``at`` an instant, after a ``delay``, or dead."""
        hold = hold_of(what, None, None)
        now_ms = self._clock.now_ms()
        items = [RetryItem(item_id, at=at, delay=delay, dead=dead).to_wire(now_ms) for item_id in hold.ids]
        await self._ask(wire.RetryRequest(partition=hold.partition, items=items))

    async def renew(self, what: Reserved, *, lease_timeout: DurationLike | None = None) -> datetime:
        """Extend the leases of items of one partition, and return their new deadline. All or nothing."""
        hold = hold_of(what, None, None)
        text = duration_text(lease_timeout, "lease_timeout")
        ack = await self._ask(wire.RenewRequest(partition=hold.partition, ids=hold.ids, lease_timeout=text))
        assert ack.lease_deadline is not None
        return ack.lease_deadline

    async def close(self) -> None:
        """Give back what nobody has taken, and end the stream. What was taken stays leased. May be called twice."""
        task, self._task = self._task, None
        if task is None:
            return
        self._closing = True
        self._tell()
        if self._linked:
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await self._give_back()
                    self._finishing = True
                    self._wake.set()
                    await asyncio.wait([task])
            except (QueratorError, TimeoutError) as error:
                _log.debug("items that were not taken stay leased until their deadline: %s", error)
        task.cancel()
        await asyncio.wait([task])
        self._fail(RuntimeError("the consumer is closed"))

    async def _give_back(self) -> None:
        await self._ask(0)  # from here on nothing comes
        by_partition: dict[int, list[wire.RetryItem]] = {}
        while self._items:
            item = self._items.popleft()
            by_partition.setdefault(item.partition, []).append(wire.RetryItem(id=item.id, retry_at=_AT_ONCE))
        for partition, items in by_partition.items():
            for start in range(0, len(items), _MAX_IDS):
                await self._ask(wire.RetryRequest(partition=partition, items=items[start : start + _MAX_IDS]))

    # Calls and their acknowledgements.

    async def _ask(self, request: StreamRequest) -> Ack:
        """Send a call until it is acknowledged, within the client's timeout; one that may succeed later again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        attempt = 0
        while True:
            ack = await self._ask_once(request, deadline)
            if ack.error is None:
                return ack
            delay_s = self._backoff.delay_s(attempt, self._random)
            if not ack.error.retryable or loop.time() + delay_s >= deadline:
                raise ack.error
            await asyncio.sleep(delay_s)
            attempt += 1

    async def _ask_once(self, request: StreamRequest, deadline: float) -> Ack:
        self._raise_failure()
        asked = Asked(next(self._sequences), request, asyncio.get_running_loop().create_future())
        self._unacknowledged[asked.sequence] = asked
        self._outgoing.append(asked)
        self._wake.set()
        try:
            async with asyncio.timeout_at(deadline):
                return await asked.answer
        except TimeoutError:
            details = "the call was not acknowledged in time, and may have been carried out"
            raise TransportError("answer was lost", details) from self._last_error
        finally:
            self._unacknowledged.pop(asked.sequence, None)

    def _acknowledged(self, ack: Ack) -> None:
        asked = self._unacknowledged.get(ack.sequence)
        if asked is None or asked.answer.done():
            return
        if isinstance(ack.error, NotLeased) and asked.sent > 1:
            ack.error.add_note("the stream was lost before; an earlier attempt may have been carried out")
        if ack.error is None and ack.lease_deadline is not None:
            for item_id in ids_of(asked.request):
                if item_id in self._held:
                    self._held[item_id].lease_deadline = ack.lease_deadline
        elif ack.error is None:
            for item_id in ids_of(asked.request):
                self._held.pop(item_id, None)
        asked.answer.set_result(ack)

    # The stream.

    async def _run(self, link_type: type[Link]) -> None:
        """Keep a stream open until the consumer is closed, or an error that no waiting mends."""
        attempt = 0
        try:
            for address in itertools.cycle(self._addresses):
                link = link_type(address)
                try:
                    await link.open(self._opening, self._held.values())
                    attempt = 0
                    await self._serve(link)
                except QueratorError as error:
                    if not error.retryable:
                        raise
                    self._last_error = error
                    _log.debug("stream of '%s' was lost, opening it again: %s", self._opening.queue_name, error)
                finally:
                    await link.close()
                if self._finishing:
                    return
                await asyncio.sleep(self._backoff.delay_s(attempt, self._random))
                attempt += 1
        except Exception as error:  # noqa: BLE001 - raised to whoever iterates or answers
            self._fail(error)

    async def _serve(self, link: Link) -> None:
        """Read and write until the stream ends; what was not acknowledged on an earlier one is sent again."""
        self._outgoing = deque(self._unacknowledged.values())
        self._wake.set()
        self._opened = self._linked = True
        self._tell()
        writer = asyncio.get_running_loop().create_task(self._write(link))
        try:
            while (received := await link.read()) is not None:
                self._receive(received)
        finally:
            self._linked = False
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
        if not self._finishing:
            raise TransportError("stream was lost", "the server ended it")

    def _receive(self, received: Received) -> None:
        for item in received.items:
            self._held[item.id] = item
        self._items.extend(received.items)
        for ack in received.acks:
            self._acknowledged(ack)
        excess = len(self._held) - self._opening.max_in_flight
        if excess > 0:  # the server counts what is leased, so as many leases have ended
            for item in sorted(self._held.values(), key=lambda item: item.lease_deadline)[:excess]:
                del self._held[item.id]
        self._tell()

    async def _write(self, link: Link) -> None:
        """Write what has gathered as one message, again and again."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outgoing:
                await link.write(self._gather())
            if self._finishing:
                await link.finish()
                return

    def _gather(self) -> list[Asked]:
        gathered: list[Asked] = []
        count = 0
        while self._outgoing and (count < _MAX_IDS):
            asked = self._outgoing.popleft()
            asked.sent += 1
            count += max(1, len(ids_of(asked.request)))
            gathered.append(asked)
        return gathered

    # What waits here.

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        for asked in self._unacknowledged.values():
            if not asked.answer.done():
                asked.answer.set_exception(self._failure)
        self._tell()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _load_link() -> type[Link]:
    try:
        from querator.consume_link import Link
    except ImportError as error:
        raise ModuleNotFoundError(
            "consuming over gRPC needs grpcio and protobuf: install querator[grpc]", name=error.name
        ) from error
    return Link
