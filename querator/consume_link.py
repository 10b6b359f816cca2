"""One stream of gRPC between a consumer and a server: messages to the client's types and back.

The only module of the client that needs grpcio and protobuf (`querator[grpc]`); `querator.consume` loads it when a
stream is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from typing import Any

import grpc
from msgspec import UNSET
from yarl import URL

from querator import wire
from querator.client_items import ReservedItem
from querator.consume_calls import Ack, Asked, Opening, Received
from querator.errors import QueratorError, TransportError
from querator.transport import error_of
from querator.v1 import consume_pb2, envelope_pb2, queue_pb2

_METHOD = "/querator.v1.Queue/Consume"
_OPENED = "querator-stream"
_ENVELOPE = "querator-envelope-bin"
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),  # a server that vanished is noticed also while nothing is sent
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_http_proxy", 0),  # as the client's HTTP
    ("grpc.use_local_subchannel_pool", 1),  # or a new link waits for the backoff of the one before it
]


class Link:
    """`open`, then `read` and `write`, each by one task; then `close`. What goes wrong is an error of the tree."""

    def __init__(self, address: URL) -> None:
        self._address = address
        target = f"{address.host_subcomponent}:{address.port}"
        if address.scheme == "https":
            self._channel = grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(), options=_OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self._stream: Any = None

    async def open(self, opening: Opening, held: Iterable[ReservedItem]) -> None:
        """Returns once the server has accepted."""
        method = self._channel.stream_stream(
            _METHOD,
            request_serializer=consume_pb2.ConsumeRequest.SerializeToString,
            response_deserializer=consume_pb2.ConsumeAnswer.FromString,
        )
        self._stream = stream = method()
        try:
            await stream.write(consume_pb2.ConsumeRequest(open=_open(opening, held)))
            metadata = await stream.initial_metadata()
            if _OPENED not in dict(metadata or ()):
                await self._stream.read()  # which raises why
                raise TransportError("unexpected answer", f"{self._address} does not know this stream")
        except grpc.aio.AioRpcError as error:
            raise self._error(error) from None

    async def read(self) -> Received | None:
        """What comes next; None when the server has ended the stream in order."""
        try:
            answer = await self._stream.read()
        except grpc.aio.AioRpcError as error:
            raise self._error(error) from None
        if answer is grpc.aio.EOF:
            return None
        reserved = answer.reserved
        items = [_item(item, reserved.queueName, reserved.partition) for item in reserved.items]
        return Received(items, [_ack(each) for each in answer.acks])

    async def write(self, asked: Iterable[Asked]) -> None:
        try:
            await self._stream.write(consume_pb2.ConsumeRequest(calls=[_call(each) for each in asked]))
        except grpc.aio.AioRpcError as error:
            raise self._error(error) from None

    async def finish(self) -> None:
        """Nothing more will be written; the server acknowledges what it has, and ends."""
        await self._stream.done_writing()

    async def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        await self._channel.close()

    def _error(self, failed: grpc.aio.AioRpcError) -> QueratorError:
        for name, value in failed.trailing_metadata() or ():
            if name == _ENVELOPE:
                envelope = envelope_pb2.Envelope.FromString(value)
                return error_of(envelope.code, envelope.message)
        details = f"{self._address}: {failed.code().name}: {failed.details()}"
        if failed.code() is grpc.StatusCode.UNIMPLEMENTED:
            return error_of(501, f"no such method; {details}")
        return TransportError("stream was lost", details)


def _open(opening: Opening, held: Iterable[ReservedItem]) -> consume_pb2.ConsumeOpen:
    return consume_pb2.ConsumeOpen(
        queueName=opening.queue_name,
        clientId=opening.client_id,
        batchSize=opening.batch_size,
        maxInFlight=opening.max_in_flight,
        leaseTimeout=opening.lease_timeout,
        releaseOnClose=opening.release_on_close,
        held=[
            consume_pb2.ConsumeHeld(partition=item.partition, ids=[item.id], leaseDeadline=item.lease_deadline)
            for item in held
        ],
    )


def _call(asked: Asked) -> consume_pb2.ConsumeCall:
    sequence, request = asked.sequence, asked.request
    match request:
        case wire.CompleteRequest():
            complete = queue_pb2.CompleteRequest(partition=request.partition, ids=request.ids)
            return consume_pb2.ConsumeCall(sequence=sequence, complete=complete)
        case wire.RetryRequest():
            retry = queue_pb2.RetryRequest(partition=request.partition, items=[_retry(each) for each in request.items])
            return consume_pb2.ConsumeCall(sequence=sequence, retry=retry)
        case wire.RenewRequest():
            renew = queue_pb2.RenewRequest(
                partition=request.partition, ids=request.ids, leaseTimeout=request.lease_timeout
            )
            return consume_pb2.ConsumeCall(sequence=sequence, renew=renew)
        case int():
            return consume_pb2.ConsumeCall(sequence=sequence, maxInFlight=request)


def _retry(item: wire.RetryItem) -> queue_pb2.RetryItem:
    retry_at = None if item.retry_at is UNSET else item.retry_at
    return queue_pb2.RetryItem(id=item.id, retryAt=retry_at, dead=item.dead)


def _item(item: queue_pb2.ReservedItem, queue_name: str, partition: int) -> ReservedItem:
    return ReservedItem(
        item.id,
        item.leaseDeadline.ToDatetime(UTC),
        item.attempts,
        item.bytes,
        item.encoding,
        item.kind,
        item.reference,
        item.createdAt.ToDatetime(UTC) if item.HasField("createdAt") else UNSET,
        queue_name=queue_name,
        partition=partition,
    )


def _ack(ack: consume_pb2.ConsumeAck) -> Ack:
    code = ack.outcome.code
    error = None if code == 200 else error_of(code, ack.outcome.message)
    deadline = ack.leaseDeadline.ToDatetime(UTC) if ack.HasField("leaseDeadline") else None
    return Ack(ack.sequence, error, deadline)
