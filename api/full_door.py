"""The full door: aiohttp, for every call and everything unusual, and for what browsers and monitors ask with GET."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from api.calls import Call, failure
from api.forms import JSON, PLAIN, Form, choose_form, error_form
from api.hall import NOSNIFF, REASONS, SERVER, Hall, Handed, Header, location
from api.health import FAIL, ClusterState, Probes, count_states, make_report
from api.metrics import PAGE, UNKNOWN_CALL, BackendSight, Sight
from api.openapi import make_document
from api.ui_files import is_ui, ui_response
from querator import wire
from querator.errors import ContentError, InternalError, InvalidRequest, NoSuchMethod, Stopping, TimedOut
from querator.queues import QueueStats
from querator.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HEALTH_TYPE = "application/health+json"
_LINGER_S = 2.0  # how long the rest of a refused body is read, so that its sender sees the answer

_NEVER_S = 86_400.0  # aiohttp's own timer must not come before the sweep, which knows when a head is under way

Page = Callable[[], Awaitable[web.Response]]


class _Handler(web.RequestHandler):
    """Answers what is no HTTP in the same envelope as every other error."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the answer was under way when it failed") from exc
        if status < 500 or isinstance(exc, HttpProcessingError):
            first_line = (message or "it cannot be read").strip().partition("\n")[0]
            error: BaseException = InvalidRequest("request is not HTTP", first_line.rstrip(":"))
        else:
            error = exc if exc is not None else InternalError()
        failed = failure(error, PLAIN, "")
        response = _response(failed.code, failed.body, JSON)
        response.force_close()
        return response


class FullServer(web.Server):
    """Makes aiohttp's protocols."""

    def __init__(self, door: FullDoor) -> None:
        super().__init__(door.handle)

    def __call__(self) -> web.RequestHandler:
        return _Handler(
            self,
            loop=self._loop,
            access_log=None,  # type: ignore[arg-type]  # None is how aiohttp is told to write none
            keepalive_timeout=_NEVER_S,
            lingering_time=_LINGER_S,
        )


class FullDoor:
    def __init__(self, hall: Hall) -> None:
        self.hall = hall
        self._probes = Probes(hall.router)
        self._running: set[asyncio.Task[Any]] = set()  # tasks of aiohttp, which lets go of them when a caller goes
        self._pages: Mapping[str, Page] = {
            "/": self._index,
            "/health": self._health,
            "/metrics": self._metrics,
            "/openapi.json": self._openapi,
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            return await self._handle(request)
        finally:
            self._running.discard(task)

    async def cut_off(self) -> None:
        """Cancel what still runs, also for callers that have gone."""
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await self._probes.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = self.hall.handed.get(request.protocol)
        if connection is not None:
            connection.handed_request()
        started_s = monotonic()
        call = self.hall.calls.get(request.path)
        span = None if call is None else self.hall.begin_span(call.name, request.headers.get("traceparent", ""))
        try:
            response = await self._respond(request, call, connection, span)
        except asyncio.CancelledError:
            self.hall.drop_span(span)
            raise
        finally:
            if connection is not None:
                connection.handed_answer()
        if request.transport is not None:  # or else the caller has gone, and nothing was answered
            self.hall.observe(self._label(request, call), response.status, started_s, span)
        else:
            self.hall.drop_span(span)
        if self.hall.stopping:
            response.force_close()
        return response

    def _label(self, request: web.BaseRequest, call: Call | None) -> str:
        if call is not None:
            return call.name
        return PAGE if request.path in self._pages or is_ui(request.path) else UNKNOWN_CALL

    async def _respond(
        self, request: web.BaseRequest, call: Call | None, connection: Handed | None, span: Span | None
    ) -> web.Response:
        form = error_form(request.headers.get("Accept", ""))
        try:
            if request.method in {"GET", "HEAD"} and (page := await self._page(request)) is not None:
                return page
            if call is None:
                raise NoSuchMethod(request.path)
            if request.method != "POST":
                raise InvalidRequest("method is not allowed", f"'{request.method}' where only POST is known")
            form = _read_form(request)
            redirect = self._read_route(request)
            body = await self._read_body(request, call)
            return await self._call(call, body, form, redirect, connection, span)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered and logged there
            failed = failure(error, form, request.path if call is None else call.name)
            response = _response(failed.code, failed.body, form.content_type, location(error, request.path))
            if not request.content.is_eof():
                response.force_close()
            return response

    async def _page(self, request: web.BaseRequest) -> web.Response | None:
        of_ui = ui_response(request.path, request.headers)
        if of_ui is not None or request.path not in self._pages:
            return of_ui
        return await self._pages[request.path]()

    def _read_route(self, request: web.BaseRequest) -> bool:
        """Whether the caller is to be sent to the owner, in place of being passed on."""
        route = request.headers.get("Querator-Route")
        if route is None:
            return self.hall.redirect
        if route not in {"redirect", "proxy"}:
            raise InvalidRequest("Querator-Route is invalid", f"'{route[:64]}' is neither 'redirect' nor 'proxy'")
        return route == "redirect"

    async def _call(
        self, call: Call, body: bytes, form: Form, redirect: bool, connection: Handed | None, span: Span | None
    ) -> web.Response:
        if self.hall.stopping:
            raise Stopping
        asked, pending = call.ask(body, form, redirect)
        if span is not None and self.hall.tracing is not None:
            self.hall.tracing.asked(span, asked, pending)
        if connection is not None and isinstance(pending, asyncio.Future):
            connection.handed_future(pending)
        try:
            result = await pending
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise self.hall.why_cancelled() from None
        hint = self.hall.hint(asked, result) if call.hot and form.extended else None
        return _response(200, call.answer(asked, result, form), form.content_type, hint)

    async def _read_body(self, request: web.BaseRequest, call: Call) -> bytes:
        """The whole body; one that is too large is refused before it is read."""
        too_large = ContentError("body is too large", f"{call.name} takes at most {call.body_limit} bytes")
        if (request.content_length or 0) > call.body_limit:
            raise too_large
        await _expect(request)
        body = bytearray()
        try:
            async with asyncio.timeout(self.hall.limits.body_timeout_ms / 1000):
                while chunk := await request.content.readany():
                    body += chunk
                    if len(body) > call.body_limit:
                        raise too_large
        except TimeoutError:
            raise TimedOut("the body of the request did not arrive in time") from None
        except web.RequestPayloadError as error:
            raise ContentError("body is invalid", f"it did not arrive whole: {error}") from None
        return bytes(body)

    async def _index(self) -> web.Response:
        pages = {"health": "/health", "metrics": "/metrics", "openapi": "/openapi.json", "ui": "/ui"}
        return _response(200, wire.encode({"name": SERVER, "version": VERSION, **pages}), JSON)

    async def _health(self) -> web.Response:
        report = await self.report()
        return _response(503 if report["status"] == FAIL else 200, wire.encode(report), _HEALTH_TYPE)

    async def report(self) -> dict[str, Any]:
        """How the instance is, for every door."""
        hall = self.hall
        probes = await self._probes.ask()
        states = count_states(await self._stats())
        sight = hall.router.sight
        cluster = ClusterState(len(sight.instances()), sight.leader(), sight.partitions_without_owner())
        return make_report(probes, states, cluster, now_ms=hall.router.clock.now_ms(), stopping=hall.stopping)

    async def _metrics(self) -> web.Response:
        router = self.hall.router
        probes = await self._probes.ask()
        queues = await self._stats()
        router.observer.keep_queues(stats.queue_name for stats in queues)
        backends = {
            backend.name: BackendSight(probes[backend.name], backend.affinity)
            for backend in router.backends()
            if backend.name in probes
        }
        sight = Sight(len(self.hall.connections), queues, backends, router.observer)
        return _response(200, self.hall.metrics.render(sight), _METRICS_TYPE)

    async def _stats(self) -> list[QueueStats]:
        """What this instance holds: those who collect ask all instances."""
        return [self.hall.router.local_stats(queue) for queue in await all_queues(self.hall)]

    async def _openapi(self) -> web.Response:
        return _response(200, _document(), JSON)


@cache
def _document() -> bytes:
    return wire.encode(make_document())


async def all_queues(hall: Hall) -> list[str]:
    """The names of all queues, page by page."""
    names: list[str] = []
    pivot, page = "", hall.limits.items_per_request
    while queues := await hall.router.list_queues(pivot, page + 1, ""):
        names.extend(queue.name for queue in queues[:page])
        if len(queues) <= page:
            break
        pivot = queues[page].name
    return names


def _read_form(request: web.BaseRequest) -> Form:
    get = request.headers.get
    return choose_form(get("Content-Type", ""), get("Accept", ""), get("Querator-Extended", ""))


async def _expect(request: web.BaseRequest) -> None:
    """Tell a client that asked first to go on."""
    expect = request.headers.get("Expect")
    if expect is None or request.version < (1, 1):
        return
    if expect.lower() != "100-continue":
        raise ContentError("Expect is not supported", f"'{expect[:64]}' is not '100-continue'")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # or aiohttp takes this for the beginning of the answer


def _response(code: int, body: bytes, content_type: str, header: Header | None = None) -> web.Response:
    headers = dict([("Content-Type", content_type), NOSNIFF, ("Server", SERVER), *([header] if header else [])])
    return web.Response(status=code, reason=REASONS.get(code), body=body, headers=headers)
