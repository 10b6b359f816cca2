"""Calls a server by gRPC, without any code of ours between the test and the wire but the messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import Message

from api.codec import MESSAGES
from api.server import Server
from querator import wire
from querator.v1 import consume_pb2, envelope_pb2

PATIENCE_S = 60  # on a machine that others use too
EXTENDED = (("querator-extended", "1"),)


class Grpc:
    def __init__(self, channel: Any) -> None:
        self.channel = channel

    def begin(
        self, name: str, body: bytes | None = None, /, *, metadata: Any = (), timeout: float = PATIENCE_S, **fields: Any
    ) -> Any:
        """A call under way, answered with bytes. Fields go by their original names."""
        if body is None:
            body = MESSAGES[wire.SHAPES[name].request.__name__](**fields).SerializeToString()
        method = self.channel.unary_unary(f"/querator.v1.Queue/{wire.method_name(name)}")
        return method(body, metadata=metadata, timeout=timeout)

    async def call(self, name: str, metadata: Any = (), /, **fields: Any) -> Any:
        answer: Message = MESSAGES[wire.SHAPES[name].answer.__name__]()
        answer.ParseFromString(await self.begin(name, metadata=metadata, **fields))
        return answer

    def consume(self) -> Stream:
        method = self.channel.stream_stream(
            "/querator.v1.Queue/Consume",
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=consume_pb2.ConsumeAnswer.FromString,
        )
        return Stream(method(timeout=PATIENCE_S * 2))


class Stream:
    """A `Consume` stream that remembers what came."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.items: list[Any] = []  # all that came, in order
        self.acks: dict[int, Any] = {}
        self._sequence = 0

    async def open(self, **fields: Any) -> None:
        fields = {"queueName": "mail", "clientId": "c", "maxInFlight": 10, **fields}
        await self.call.write(consume_pb2.ConsumeRequest(open=fields))

    async def ask(self, **call: Any) -> int:
        """Send one call; gives its sequence number."""
        self._sequence += 1
        await self.call.write(consume_pb2.ConsumeRequest(calls=[{"sequence": self._sequence, **call}]))
        return self._sequence

    async def read(self) -> bool:
        """Take the next message; False at the end of the stream."""
        answer = await self.call.read()
        if answer is grpc.aio.EOF:
            return False
        self.items += answer.reserved.items
        self.acks |= {ack.sequence: ack for ack in answer.acks}
        return True

    async def items_come(self, count: int) -> list[Any]:
        """Wait until so many have come; the last of them."""
        while len(self.items) < count:
            assert await self.read()
        return self.items

    async def answer(self, **call: Any) -> Any:
        """Send one call and wait for its acknowledgement."""
        sequence = await self.ask(**call)
        while sequence not in self.acks:
            assert await self.read()
        return self.acks[sequence]

    async def complete(self, items: Iterable[Any]) -> Any:
        ack = await self.answer(complete={"ids": [item.id for item in items]})
        assert ack.outcome.code == 200, ack

    async def error(self) -> tuple[grpc.StatusCode, Any]:
        """Read to the end, which is an error: gRPC's status, and the envelope."""
        try:
            while await self.read():
                pass
        except grpc.aio.AioRpcError as error:
            return error.code(), envelope_of(error)
        raise AssertionError("the stream ended well")


def envelope_of(error: grpc.aio.AioRpcError) -> Any:
    metadata = dict(error.trailing_metadata())
    envelope = envelope_pb2.Envelope.FromString(metadata["querator-envelope-bin"])
    assert metadata["querator-code"] == str(envelope.code)
    assert error.details() == envelope.message
    return envelope


@asynccontextmanager
async def grpc_to(server: Server) -> AsyncIterator[Grpc]:
    assert server.grpc_address is not None
    host, port = server.grpc_address
    options = [("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0)]
    async with grpc.aio.insecure_channel(f"{host}:{port}", options=options) as channel:
        yield Grpc(channel)


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():
            await asyncio.sleep(0.005)
