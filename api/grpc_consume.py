"""The `Consume` stream: items are pushed while few enough are unanswered, and calls about them come back.

Three tasks serve a stream until it ends: one takes the client's calls, one reserves, one writes what has gathered.
The calls are those of the other doors, with their checks, errors and counters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from api.calls import Call, known_error
from api.checks import check_batch_size, check_client_id, read_lease_timeout
from api.codec import message_reader, write_message
from api.grpc_flight import Flight
from api.hall import Hall
from querator import wire
from querator.durations import from_instant, to_instant
from querator.errors import ContentError, InvalidRequest, QueratorError, Stopping, TimedOut
from querator.names import check_queue_name
from querator.v1 import consume_pb2, envelope_pb2

OPENED = (("querator-stream", "open"),)  # the initial metadata, by which a client knows that it was accepted
MAX_UNACKNOWLEDGED = 256  # calls of one stream; the next is read when one of them is acknowledged
MAX_BATCHES = 10  # of the most items that a request may name, unanswered

_READERS = {
    "complete": message_reader(wire.CompleteRequest),
    "retry": message_reader(wire.RetryRequest),
    "renew": message_reader(wire.RenewRequest),
}
_AT_ONCE = datetime(1970, 1, 1, tzinfo=UTC)


class ConsumeStream:
    """One stream: `run` serves it to its end; `stop` ends it early; `release` gives back what is left."""

    def __init__(self, hall: Hall, context: Any) -> None:
        self._hall = hall
        self._context = context
        self._reserve = hall.calls["/queue.reserve"]
        self._calls: dict[str, Call] = {kind: hall.calls[f"/queue.{kind}"] for kind in _READERS}
        self._open: consume_pb2.ConsumeOpen
        self._flight: Flight | None = None
        self._ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._pending: set[asyncio.Future[Any]] = set()  # calls that are asked and not answered
        self._places = asyncio.Semaphore(MAX_UNACKNOWLEDGED)
        self._acks: list[consume_pb2.ConsumeAck] = []
        self._request: wire.ReserveRequest
        self._reserving: asyncio.Future[Any] | None = None
        self._reserve_started_s = 0.0
        self._reserved: Any = None  # what waits to be written
        self._unwritten = False  # items are reserved, and not written
        self._wake = asyncio.Event()  # there is something to write, or never will be
        self._written = asyncio.Event()
        self._last_written = False

    async def run(self) -> None:
        """Serve until the client has sent all or goes; raises what ends the stream otherwise."""
        self._opened(await self._read())
        await self._context.send_initial_metadata(OPENED)
        loop = asyncio.get_running_loop()
        reader = loop.create_task(self._guard(self._take_calls()))
        pusher = loop.create_task(self._guard(self._push()))
        writer = loop.create_task(self._guard(self._write()))
        try:
            error = await self._ended
            reader.cancel()
            pusher.cancel()
            while self._pending:
                await asyncio.wait(self._pending)
            self._last_written = True
            self._wake.set()
            await writer
        finally:
            for task in (reader, pusher, writer):
                task.cancel()
            await asyncio.gather(reader, pusher, writer, return_exceptions=True)
        if error is not None:
            raise error

    def stop(self) -> None:
        """The instance stops: answer what was asked, and end."""
        self._end(Stopping())

    @property
    def must_release(self) -> bool:
        return self._flight is not None and self._open.releaseOnClose

    async def release(self) -> None:
        """Retry what is unanswered, after the calls that still run. What is no longer leased is left alone."""
        assert self._flight is not None
        if self._pending:
            await asyncio.wait(self._pending)
        most = self._hall.limits.items_per_request
        for partition, ids in self._flight.held().items():
            for start in range(0, len(ids), most):
                some = ids[start : start + most]
                if not await self._give_back(partition, some):
                    for item_id in some:
                        await self._give_back(partition, [item_id])

    async def _give_back(self, partition: int, ids: list[str]) -> bool:
        items = [wire.RetryItem(id=item_id, retry_at=_AT_ONCE) for item_id in ids]
        request = wire.RetryRequest(queue_name=self._open.queueName, partition=partition, items=items)
        started_s = monotonic()
        try:
            await self._calls["retry"].begin(request, True)
        except QueratorError as error:
            self._hall.observe("queue.retry", error.code, started_s)
            return False
        self._hall.observe("queue.retry", 200, started_s)
        return True

    async def _guard(self, part: Coroutine[Any, Any, None]) -> None:
        """Run a part of the stream; an error in it ends the stream, unless the client has gone anyway."""
        try:
            await part
        except Exception as error:  # noqa: BLE001 - raised by `run`, answered and logged at the door
            self._end(None if self._context.done() else error)

    def _end(self, error: BaseException | None) -> None:
        if not self._ended.done():
            self._ended.set_result(error)

    # The client's messages.

    async def _read(self) -> consume_pb2.ConsumeRequest | None:
        body = await self._context.read()
        if body is grpc.aio.EOF:
            return None
        most = self._hall.limits.produce_body_bytes
        if len(body) > most:
            raise ContentError("body is too large", f"a message of Consume has at most {most} bytes")
        try:
            return consume_pb2.ConsumeRequest.FromString(body)
        except DecodeError:
            raise ContentError("body is invalid", "it is not a message of Consume") from None

    def _opened(self, first: consume_pb2.ConsumeRequest | None) -> None:
        """Check what the first message asks for, as far as can be known before anything is reserved."""
        if self._hall.stopping:
            raise Stopping
        if first is None or not first.HasField("open") or first.calls:
            raise InvalidRequest("open is invalid", "the first message of Consume must hold it, and no calls")
        opening, limits = first.open, self._hall.limits
        check_queue_name(opening.queueName)
        self._hall.router.queue(opening.queueName)  # which must exist
        check_client_id(opening.clientId)
        read_lease_timeout(opening.leaseTimeout, limits)
        if opening.batchSize:
            check_batch_size(opening.batchSize, limits)
        if not opening.HasField("maxInFlight"):
            raise InvalidRequest("max_in_flight is invalid", "it must be given")
        self._check_max(opening.maxInFlight)
        self._open = opening
        self._flight = Flight(self._hall.router.clock, opening.maxInFlight)
        for held in opening.held:
            self._flight.add(held.ids, held.partition, held.leaseDeadline.ToMilliseconds())

    def _check_max(self, max_in_flight: int) -> None:
        most = MAX_BATCHES * self._hall.limits.items_per_request
        if not 0 <= max_in_flight <= most:
            raise InvalidRequest("max_in_flight is invalid", f"it must be 0 to {most}, and is {max_in_flight}")

    async def _take_calls(self) -> None:
        while (message := await self._read()) is not None:
            if message.HasField("open"):
                raise InvalidRequest("open is invalid", "only the first message of Consume may hold it")
            for asked in message.calls:
                await self._places.acquire()
                self._begin(asked)
        self._end(None)

    def _begin(self, asked: consume_pb2.ConsumeCall) -> None:
        kind = asked.WhichOneof("call")
        started_s = monotonic()
        name = f"queue.{kind}" if kind in _READERS else ""
        try:
            if kind == "maxInFlight":
                self._set_max(asked.maxInFlight)
                self._acknowledge(asked.sequence, None, name, started_s)
                return
            if kind is None:
                raise InvalidRequest("call is invalid", "it must be one of complete, retry, renew and max_in_flight")
            request = _READERS[kind](getattr(asked, kind))
            if request.queue_name not in {"", self._open.queueName}:
                raise InvalidRequest("queue_name is invalid", f"this stream is of '{self._open.queueName}'")
            request.queue_name = self._open.queueName
            pending = asyncio.ensure_future(self._calls[kind].begin(request, True))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered and logged there
            self._acknowledge(asked.sequence, known_error(error, name), name, started_s)
            return
        self._pending.add(pending)
        pending.add_done_callback(partial(self._answered, kind, request, asked.sequence, started_s))

    def _answered(self, kind: str, request: Any, sequence: int, started_s: float, pending: asyncio.Future[Any]) -> None:
        """A call is answered: what it says of items in flight counts from here on."""
        assert self._flight is not None
        self._pending.discard(pending)
        name = f"queue.{kind}"
        if pending.cancelled():
            self._acknowledge(sequence, self._hall.why_cancelled(), name, started_s)
        elif (error := pending.exception()) is not None:
            self._acknowledge(sequence, known_error(error, name), name, started_s)
        elif kind == "renew":
            self._flight.renew(request.ids, pending.result())
            self._acknowledge(sequence, None, name, started_s, pending.result())
        else:
            self._flight.drop(request.ids if kind == "complete" else [item.id for item in request.items])
            self._acknowledge(sequence, None, name, started_s)

    def _acknowledge(
        self, sequence: int, error: QueratorError | None, name: str, started_s: float, deadline_ms: int = 0
    ) -> None:
        code = 200 if error is None else error.code
        outcome = envelope_pb2.Envelope(code=code)
        if error is not None:
            outcome.codeText = error.code_text
            outcome.message = error.message
        ack = consume_pb2.ConsumeAck(sequence=sequence, outcome=outcome)
        if deadline_ms:
            ack.leaseDeadline.FromDatetime(to_instant(deadline_ms))
        if name:
            self._hall.observe(name, code, started_s)
        self._acks.append(ack)
        self._wake.set()

    # Items.

    def _set_max(self, max_in_flight: int) -> None:
        """Once this is acknowledged, no more items come than it allows."""
        assert self._flight is not None
        self._check_max(max_in_flight)
        if self._flight.set_max(max_in_flight) and self._reserving is not None and not self._reserving.cancel():
            self._take_reserved()

    async def _push(self) -> None:
        assert self._flight is not None
        most = self._open.batchSize or self._hall.limits.items_per_request
        while True:
            while self._unwritten:
                self._written.clear()
                await self._written.wait()
            self._request = wire.ReserveRequest(
                queue_name=self._open.queueName,
                batch_size=min(most, await self._flight.room()),
                client_id=self._open.clientId,
                lease_timeout=self._open.leaseTimeout,
            )
            self._reserve_started_s = monotonic()
            self._reserving = reserving = asyncio.ensure_future(self._reserve.begin(self._request, True))
            try:
                await asyncio.wait([reserving])
            except asyncio.CancelledError:
                if not reserving.cancel():
                    self._take_reserved()  # too late to give them back
                raise
            self._take_reserved()

    def _take_reserved(self) -> None:
        """Let what was reserved be written next, once."""
        assert self._flight is not None
        reserving, self._reserving = self._reserving, None
        if reserving is None or reserving.cancelled():
            return
        try:
            answer = self._reserve.answer_value(self._request, reserving.result(), True)
        except TimedOut:
            return
        assert isinstance(answer, wire.ReserveAnswer)
        deadline_ms = from_instant(answer.items[0].lease_deadline)
        self._flight.add([item.id for item in answer.items], answer.partition, deadline_ms)
        self._hall.observe(self._reserve.name, 200, self._reserve_started_s)
        self._reserved = write_message(answer)
        self._unwritten = True
        self._wake.set()

    async def _write(self) -> None:
        """Write what has gathered as one message, again and again."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            acks, self._acks = self._acks, []
            reserved, self._reserved = self._reserved, None
            if acks or reserved is not None:
                await self._context.write(consume_pb2.ConsumeAnswer(reserved=reserved, acks=acks).SerializeToString())
                for _ in acks:
                    self._places.release()
                if reserved is not None:
                    self._unwritten = False
                    self._written.set()
            elif self._last_written:
                return
            if self._last_written:
                self._wake.set()
