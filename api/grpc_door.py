"""The gRPC door: the calls as a service, with gRPC's deadlines and cancellation, its health and its reflection.

A method passes the bytes of its request to the call and the bytes of the answer back: nothing is decoded twice. The
`Consume` stream is in `api.grpc_consume`. See docs/adr/0008.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from grpc_reflection.v1alpha import reflection

from api.calls import Call, known_error
from api.checks import bound_timeout
from api.codec import write_protobuf
from api.forms import Form
from api.grpc_consume import ConsumeStream
from api.grpc_health import HEALTH, Report, health_handler
from api.hall import Hall
from querator import wire
from querator.errors import ContentError, QueratorError, RequestFailed, Stopping
from querator.v1 import service_pb2

if TYPE_CHECKING:
    from opentelemetry.trace import Span

Address = tuple[str, int]

SERVICE: str = service_pb2.DESCRIPTOR.services_by_name["Queue"].full_name
EXTENDED = "querator-extended"
CODE = "querator-code"
ENVELOPE = "querator-envelope-bin"

_MAX_DETAILS = 1000  # characters; trailing metadata has to fit into a header
_KEEPALIVE_MS = 30_000
_LISTED = Form(request_protobuf=True, answer_protobuf=True)
_EXTENDED = Form(request_protobuf=True, answer_protobuf=True, extended=True)


class GrpcDoor:
    """`start`, then `stop`. Shares the hall and the report of health with the doors of HTTP."""

    def __init__(self, hall: Hall, report: Report) -> None:
        self._hall = hall
        self._report = report
        self._server: Any = None
        self._stopping = asyncio.Event()
        self._streams: set[ConsumeStream] = set()
        self._running: set[asyncio.Task[Any]] = set()  # what is carried to its end when its caller goes

    async def start(self, listen: Address, *, shared: bool = False) -> Address:
        """Listen; gives the address that was bound (port 0 is any free one). Shared: others may listen there too."""
        hall = self._hall
        server = grpc.aio.server(maximum_concurrent_rpcs=hall.limits.connections, options=_options(hall, shared))
        methods = {wire.method_name(call.name): self._method(call) for call in set(hall.calls.values())}
        methods["Consume"] = grpc.stream_stream_rpc_method_handler(self._consume)
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, methods),
                health_handler(self._report, ("", SERVICE), self._stopping),
            )
        )
        reflection.enable_server_reflection((SERVICE, HEALTH, reflection.SERVICE_NAME), server)
        host, port = listen
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound = server.add_insecure_port(address)
        except RuntimeError:
            await server.stop(None)
            details = f"{address} is taken, or is no address of this machine"
            raise RequestFailed("grpc_listen cannot be used", details) from None
        await server.start()
        self._server = server
        return host, bound

    async def stop(self) -> None:
        """End the streams, let what runs finish within the grace. The hall is stopping already. May be called twice."""
        server, self._server = self._server, None
        if server is None:
            return
        self._stopping.set()
        for stream in self._streams:
            stream.stop()
        await server.stop(self._hall.limits.stop_grace_ms / 1000)
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _method(self, call: Call) -> Any:
        async def serve(body: bytes, context: Any) -> bytes:
            hall = self._hall
            started_s = monotonic()
            metadata = dict(context.invocation_metadata())
            span = hall.begin_span(call.name, metadata.get("traceparent", ""))
            try:
                answer = await self._answer(call, body, context, metadata.get(EXTENDED) == "1", span)
            except asyncio.CancelledError:
                hall.drop_span(span)
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is answered and logged there
                known = known_error(error, call.name)
                hall.observe(call.name, known.code, started_s, span)
                await refuse(known, context)
            hall.observe(call.name, 200, started_s, span)
            return answer

        return grpc.unary_unary_rpc_method_handler(serve)

    async def _answer(self, call: Call, body: bytes, context: Any, extended: bool, span: Span | None) -> bytes:
        hall = self._hall
        if hall.stopping:
            raise Stopping
        if len(body) > call.body_limit:
            raise ContentError("body is too large", f"{call.name} takes at most {call.body_limit} bytes")
        form = _EXTENDED if extended else _LISTED
        request = call.read(body, form)
        time_left_s = context.time_remaining()
        if time_left_s is not None and hasattr(request, "request_timeout"):
            time_left_ms = max(0, int(time_left_s * 1000))
            request.request_timeout = bound_timeout(request.request_timeout, time_left_ms, hall.limits)
        asked = call.begin(request, form.extended)
        if span is not None and hall.tracing is not None:
            hall.tracing.asked(span, request, asked)
        try:
            result = await (asked if isinstance(asked, asyncio.Future) else self._carried(asked))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise hall.why_cancelled() from None
        return call.answer(request, result, form)

    async def _carried(self, asked: Awaitable[Any]) -> Any:
        """What has several steps goes on to its end, also when the caller goes."""

        async def carry() -> Any:
            return await asked

        return await asyncio.shield(self._spawn(carry()))

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _consume(self, _requests: Any, context: Any) -> None:
        stream = ConsumeStream(self._hall, context)
        self._streams.add(stream)
        try:
            await stream.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered and logged there
            await refuse(known_error(error, "Consume"), context)
        finally:
            self._streams.discard(stream)
            if stream.must_release:
                self._spawn(stream.release())


async def refuse(error: QueratorError, context: Any) -> NoReturn:
    """Answer with an error; its envelope goes along whole, since gRPC's codes say less."""
    message = error.message if len(error.message) <= _MAX_DETAILS else f"{error.message[:_MAX_DETAILS]}…"
    envelope = wire.Envelope(code=error.code, code_text=error.code_text, message=message)
    metadata = ((CODE, str(error.code)), (ENVELOPE, write_protobuf(envelope)))
    await context.abort(grpc.StatusCode[error.grpc_status], message, metadata)
    raise AssertionError("abort raises")


def _options(hall: Hall, shared: bool) -> list[tuple[str, int]]:
    limits = hall.limits
    return [
        (
            "grpc.so_reuseport",
            int(shared),
        ),  # or else a second server on the same port would start, and take half of the calls
        ("grpc.max_receive_message_length", max(call.body_limit for call in hall.calls.values())),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_connection_idle_ms", limits.idle_timeout_ms),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),  # a client that vanished must not keep a reserve waiting
        ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_MS // 3),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
