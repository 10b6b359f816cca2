"""The way to etcd: its members, which of them is asked, who we are, and what is done when one does not answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from pathlib import Path

import grpc
import grpc.aio

from cluster.coordinator import CoordinationError
from cluster.etcd_calls import AUTHENTICATE, Call, EtcdError, Reply, Request
from cluster.etcd_options import EtcdOptions
from cluster.etcd_proto import etcd_rpc_pb2 as rpc
from querator.clock import Clock, sleep_ms
from querator.lifecycle import backoff_ms
from querator.queues import RetryPolicy

BACKOFF = RetryPolicy(base_ms=50, factor=2.0, max_ms=1000, jitter=0.5)
_CONNECT_PAUSE_MS = 10
_PING_TIMEOUT_MS = 5000
_CONNECT_TIMEOUT_MS = 5000
_RECONNECT_MS, _MAX_RECONNECT_MS = 100, 1000

Metadata = tuple[tuple[str, str], ...]


class EtcdConnection:
    """One member is asked for as long as it answers; then the next one that is connected."""

    def __init__(self, options: EtcdOptions, *, clock: Clock, rng: random.Random) -> None:
        options.check()
        self._options = options
        self._clock = clock
        self._rng = rng
        credentials = _credentials(options)
        self._members = [_channel(target, options, credentials) for target in options.targets()]
        self._current = 0
        self._token = ""
        self._authenticating = asyncio.Lock()
        self.closed = False

    async def ask(self, call: Call[Request, Reply], request: Request, timeout_ms: int = 0) -> Reply:
        """Repeated, at other members too, where that is safe; all within the time-out."""
        give_up_at_ms = self._clock.now_ms() + (timeout_ms or self._options.request_timeout_ms)
        attempts = 0
        while True:
            try:
                return await self._try(call, request, give_up_at_ms)
            except EtcdError as error:
                attempts += 1
                pause_ms = backoff_ms(BACKOFF, attempts, self._rng)
                if not error.may_repeat(call) or self._clock.now_ms() + pause_ms >= give_up_at_ms:
                    raise
            await sleep_ms(self._clock, pause_ms)

    async def stream(self, call: Call[Request, Reply], request: Request) -> AsyncGenerator[Reply, None]:
        """The answers to one request, the first of which must come in time; etcd is asked for more when we are."""
        give_up_at_ms = self._clock.now_ms() + self._options.request_timeout_ms
        index = await self._connected(give_up_at_ms)
        metadata = await self._metadata(index, give_up_at_ms)
        start = self._members[index].stream_stream(call.path, call.request.SerializeToString, call.reply.FromString)
        running = start(metadata=metadata)
        timeout_s: float | None = (give_up_at_ms - self._clock.now_ms()) / 1000
        try:
            await self._heard(index, running.write(request), timeout_s)
            while (reply := await self._heard(index, running.read(), timeout_s)) is not grpc.aio.EOF:
                timeout_s = None
                yield reply
        finally:
            running.cancel()

    async def close(self) -> None:
        self.closed = True
        await asyncio.gather(*(member.close() for member in self._members))

    async def _try(self, call: Call[Request, Reply], request: Request, give_up_at_ms: int) -> Reply:
        index = await self._connected(give_up_at_ms)
        metadata = await self._metadata(index, give_up_at_ms)
        return await self._send(index, call, request, metadata, give_up_at_ms)

    async def _send(
        self, index: int, call: Call[Request, Reply], request: Request, metadata: Metadata, give_up_at_ms: int
    ) -> Reply:
        timeout_ms = max(1, give_up_at_ms - self._clock.now_ms())
        if call.repeatable:  # leaves time for the others if this member is silent
            timeout_ms = min(timeout_ms, max(1, self._options.request_timeout_ms // len(self._members)))
        ask = self._members[index].unary_unary(call.path, call.request.SerializeToString, call.reply.FromString)
        reply: Reply = await self._heard(index, ask(request, timeout=timeout_ms / 1000, metadata=metadata), None)
        return reply

    async def _heard(self, index: int, answer: grpc.aio.Call, timeout_s: float | None) -> grpc.aio.Call:
        """The answer; or the error, after having learnt from it which member to ask the next time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except grpc.aio.AioRpcError as failure:
            error = EtcdError(failure.code(), failure.details() or "")
        except TimeoutError:
            error = EtcdError(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time")
        except asyncio.CancelledError:
            # A call that ends because the channel was closed looks to its caller as if that had been cancelled.
            if self.closed and not _is_cancelled():
                raise _closed() from None
            raise
        if error.is_of_token():
            self._token = ""
        if error.is_of_member() and index == self._current:
            self._current = (index + 1) % len(self._members)
        raise error

    async def _connected(self, give_up_at_ms: int) -> int:
        """The present member if it is connected; otherwise all are tried, and the first to be connected is taken."""
        while not self.closed:
            for step in range(len(self._members)):
                index = (self._current + step) % len(self._members)
                if self._members[index].get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
                    self._current = index
                    return index
            if self._clock.now_ms() >= give_up_at_ms:
                raise CoordinationError(f"etcd cannot be reached at {', '.join(self._options.targets())}")
            await sleep_ms(self._clock, _CONNECT_PAUSE_MS)
        raise _closed()

    async def _metadata(self, index: int, give_up_at_ms: int) -> Metadata:
        """With a token, if etcd asks for users. A member that has no leader shall say so, and not be silent."""
        needs_leader = ("hasleader", "true")
        if not self._options.user:
            return (needs_leader,)
        async with self._authenticating:
            if not self._token:
                request = rpc.AuthenticateRequest(name=self._options.user, password=self._options.password)
                answer = await self._send(index, AUTHENTICATE, request, (needs_leader,), give_up_at_ms)
                self._token = answer.token
            return (needs_leader, ("token", self._token))


def _channel(target: str, options: EtcdOptions, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    settings = [
        ("grpc.max_receive_message_length", options.message_bytes),
        ("grpc.max_send_message_length", options.message_bytes),
        # A member that is stopped or cut off is noticed by its silence. No pings without a call: etcd hangs up on those.
        ("grpc.keepalive_time_ms", options.ping_interval_ms),
        ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
        ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),  # otherwise a minute, whatever the line before says
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.min_reconnect_backoff_ms", _CONNECT_TIMEOUT_MS),
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS),
        ("grpc.max_reconnect_backoff_ms", _MAX_RECONNECT_MS),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
    ]
    if credentials is None:
        return grpc.aio.insecure_channel(target, settings)
    return grpc.aio.secure_channel(target, credentials, settings)


def _credentials(options: EtcdOptions) -> grpc.ChannelCredentials | None:
    if not options.uses_tls():
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=_read("ca_file", options.ca_file),
        private_key=_read("key_file", options.key_file),
        certificate_chain=_read("cert_file", options.cert_file),
    )


def _read(option: str, path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CoordinationError(f"{option} cannot be read: {path}: {error.strerror}") from error


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _closed() -> CoordinationError:
    return CoordinationError("the coordinator is closed")
