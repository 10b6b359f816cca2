"""Links between instances, over gRPC: one stream from each instance to each other one that it talks to."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import grpc

from cluster.channel import LinkLost
from cluster.peers import Peers

SERVICE = "querator.v1.Peer"
_METHOD = "Exchange"
_INSTANCE = "querator-instance"
_CONNECT_TIMEOUT_S = 3.0
_MAX_FRAME_BYTES = 256 << 20  # a frame of many large produces

# A peer that is paused or cut off is noticed by the pings, not by the calls that wait for it.
_OPTIONS = (
    ("grpc.max_send_message_length", _MAX_FRAME_BYTES),
    ("grpc.max_receive_message_length", _MAX_FRAME_BYTES),
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),  # otherwise a minute, whatever the line before says
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_FRAME_BYTES),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
)


class _Stream(Protocol):
    """What the two ends of a stream have in common."""

    async def read(self) -> Any: ...
    async def write(self, message: bytes) -> None: ...


class _Link:
    def __init__(self, stream: _Stream, channel: grpc.aio.Channel | None = None) -> None:
        self._stream = stream
        self._channel = channel

    async def write(self, frame: bytes) -> None:
        try:
            await self._stream.write(frame)
        except (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise LinkLost(str(error)) from error

    async def read(self) -> bytes:
        try:
            frame = await self._stream.read()
        except (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise LinkLost(str(error)) from error
        if frame is grpc.aio.EOF:
            raise LinkLost("the other end has gone")
        return bytes(frame)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()


class Caller:
    """Makes links in the name of one instance."""

    def __init__(self, instance: str) -> None:
        self._metadata = ((_INSTANCE, instance),)

    async def connect(self, address: str) -> _Link:
        channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await _until_ready(channel)
        except (TimeoutError, ConnectionError):
            await channel.close()
            raise LinkLost(f"'{address}' does not answer") from None
        except BaseException:
            await channel.close()
            raise
        return _Link(channel.stream_stream(f"/{SERVICE}/{_METHOD}")(metadata=self._metadata), channel)


async def _until_ready(channel: grpc.aio.Channel) -> None:
    """Connect; a refusal ends the wait, where gRPC itself would go on trying."""
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            raise ConnectionError
        await channel.wait_for_state_change(state)
        state = channel.get_state()


def peer_handler(peers: Peers) -> grpc.GenericRpcHandler:
    """To be added to a server of gRPC."""

    async def exchange(_frames: Any, context: Any) -> None:
        instance = dict(context.invocation_metadata()).get(_INSTANCE, "")
        await peers.serve(str(instance), _Link(context))

    methods = {_METHOD: grpc.stream_stream_rpc_method_handler(exchange)}
    return grpc.method_handlers_generic_handler(SERVICE, methods)
