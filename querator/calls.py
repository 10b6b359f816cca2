"""What stands between the client's methods and the transport: messages to bytes and back, time limits, pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias, TypeVar

import msgspec

from querator import wire
from querator.client_routes import Routes, Way
from querator.client_times import DurationLike, duration_s
from querator.client_tracing import call_span
from querator.durations import format_duration
from querator.transport import Call, Transport, error_of

A = TypeVar("A")

_Timed: TypeAlias = wire.ProduceRequest | wire.ReserveRequest | wire.CompleteRequest

_DIRECT: Final = frozenset({"queue.produce", "queue.reserve", "queue.complete", "queue.retry", "queue.renew"})
_ROUTE_TIMEOUT_S: Final = 5.0

_encode = msgspec.json.Encoder().encode


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    status: str  # "pass", "warn" or "fail"
    output: str = ""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says of itself."""

    status: str  # "pass", "warn" or "fail"
    version: str = ""
    checks: dict[str, list[HealthCheck]] = {}


class Calls:
    """Sends requests and reads their answers.

    ``direct`` says whether the calls by which work gets done go to the owners: always, never, or (None) if a server says
    that there are others.
    """

    def __init__(self, transport: Transport, timeout_s: float, direct: bool | None = False) -> None:
        self._transport = transport
        self._timeout_s = timeout_s  # of a call that names none
        self._routes = None if direct is False else Routes(transport, self.route, always=direct is True)

    async def route(self, queue_name: str, timeout: DurationLike | None = _ROUTE_TIMEOUT_S) -> wire.ClusterRouteAnswer:
        request = wire.ClusterRouteRequest(queue_name=queue_name)
        return await self.send("cluster.route", request, wire.ClusterRouteAnswer, timeout)

    async def send(
        self,
        method: str,
        request: wire.Request,
        answer: type[A],
        timeout: DurationLike | None,
        repeatable: bool = True,
    ) -> A:
        body = _encode(request)
        return await self._send(method, request, lambda _: body, answer, timeout, repeatable)

    async def send_timed(
        self, method: str, request: _Timed, answer: type[A], timeout: DurationLike | None, repeatable: bool = True
    ) -> A:
        """A call that tells the server how long it may take."""

        def encode(remaining_ms: int) -> bytes:
            request.request_timeout = format_duration(remaining_ms)
            return _encode(request)

        return await self._send(method, request, encode, answer, timeout, repeatable)

    async def health(self, timeout: DurationLike | None) -> Health:
        status, body = await self._transport.get("health", self._total_s(timeout))
        try:
            return msgspec.json.decode(body, type=Health)
        except msgspec.MsgspecError:
            raise error_of(status if status >= 400 else 500, "unexpected answer; it is not a health report") from None

    async def close(self) -> None:
        if self._routes is not None:
            await self._routes.close()
        await self._transport.close()

    async def _send(
        self,
        method: str,
        request: wire.Request,
        encode: Callable[[int], bytes],
        answer: type[A],
        timeout: DurationLike | None,
        repeatable: bool,
    ) -> A:
        total_s = self._total_s(timeout)
        with call_span(method, request) as span:
            headers = {} if span is None else span.headers
            call = Call(
                path=f"v1/{method}",
                encode=encode,
                timeout_s=total_s,
                repeatable=repeatable,
                headers=headers,
                way=self._way(method, request),
            )
            body = await self._transport.call(call)
            try:
                found = msgspec.json.decode(body, type=answer)
            except msgspec.MsgspecError as error:
                raise error_of(500, f"unexpected answer; {error}") from error
            if span is not None:
                span.answered(found)
            return found

    def _way(self, method: str, request: wire.Request) -> Way | None:
        if self._routes is None or method not in _DIRECT:
            return None
        queue_name: str = getattr(request, "queue_name")  # noqa: B009 - each of them has it
        return Way(self._routes, queue_name, getattr(request, "partition", None))

    def _total_s(self, timeout: DurationLike | None) -> float:
        return self._timeout_s if timeout is None else duration_s(timeout, "timeout")


async def pages(ask: Callable[[str, int], Awaitable[list[A]]], name: Callable[[A], str], page: int) -> AsyncIterator[A]:
    """Follow the pivots. A pivot is inclusive, so each page but the first begins with what was seen already."""
    pivot = ""
    while True:
        found = await ask(pivot, page + 1)
        for one in found:
            if not pivot or name(one) != pivot:
                yield one
        if len(found) <= page:
            return
        pivot = name(found[-1])
