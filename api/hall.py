"""What both doors share: the calls, the counters, who is connected, and whether the server is stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from api.calls import Call, Redirected
from api.forms import Form
from api.metrics import Metrics
from cluster.router import Router
from querator.errors import InternalError, QueratorError, Stopping
from querator.limits import Limits

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from querator.telemetry import Tracing

SERVER = "querator"
NOSNIFF = ("X-Content-Type-Options", "nosniff")
Header = tuple[str, str]
_MAX_HEADS = 256

_log = structlog.get_logger("querator.api")


class Connected(Protocol):
    """One connection, through whichever door."""

    def sweep(self, now_s: float) -> None:
        """Close it if it is too slow or was idle for too long."""

    def stop(self) -> None:
        """Answer what waits, and close as soon as nothing runs."""

    def abort(self) -> None: ...


class Handed(Protocol):
    """A connection that aiohttp serves, as far as aiohttp's handler speaks to it."""

    def handed_request(self) -> None:
        """A whole head is there; the handler watches over the body itself."""

    def handed_future(self, future: asyncio.Future[Any]) -> None:
        """What the request waits for, to be cancelled when the caller goes."""

    def handed_answer(self) -> None:
        """The answer to the request is known."""


def _reasons() -> Iterator[tuple[int, str]]:
    yield 200, "OK"
    yield Redirected.code, Redirected.code_text
    kinds = [QueratorError]
    while kinds:
        kind = kinds.pop()
        yield kind.code, kind.code_text
        kinds.extend(kind.__subclasses__())


REASONS: Mapping[int, str] = dict(_reasons())


class Hall:
    def __init__(
        self,
        *,
        router: Router,
        calls: Mapping[str, Call],
        limits: Limits,
        log_requests: bool,
        tracing: Tracing | None = None,
        redirect: bool = False,
    ) -> None:
        self.router = router
        self.calls = calls
        self.limits = limits
        self.tracing = tracing
        self.redirect = redirect  # callers that do not say what they want are sent to the owner
        self.metrics = Metrics(call.name for call in calls.values())
        self.connections: set[Connected] = set()
        self.handed: dict[object, Handed] = {}  # by aiohttp's protocol
        self.stopping = False
        self.farewell = False  # new connections are let in while it stops, to be told so
        self.log_requests = log_requests
        self._when_empty: Callable[[], None] | None = None
        self._heads: dict[tuple[int, bool, bool, Header | None], bytes] = {}
        self._date = b""
        self.tell_time()

    def left(self, connection: Connected) -> None:
        """A connection is closed."""
        self.connections.discard(connection)
        if not self.connections and self._when_empty is not None:
            self._when_empty()

    def on_empty(self, callback: Callable[[], None]) -> None:
        """Call back when nobody is connected any more, which may be now."""
        self._when_empty = callback
        if not self.connections:
            callback()

    def why_cancelled(self) -> QueratorError:
        """What to say to a caller that is still there and whose request was cancelled."""
        return Stopping() if self.stopping else InternalError()

    def tell_time(self) -> None:
        """Set the date of the answers; called about once a second."""
        self._date = formatdate(self.router.clock.now_ms() / 1000, usegmt=True).encode()

    def observe(self, name: str, code: int, started_s: float, span: Span | None = None) -> None:
        """Count an answer to a call, through whichever door it went, and end its span."""
        seconds = monotonic() - started_s
        self.metrics.calls[name].observe(code, seconds)
        if self.log_requests or span is not None:
            self._tell(name, code, seconds, span)

    def _tell(self, name: str, code: int, seconds: float, span: Span | None) -> None:
        trace: dict[str, str] = {}
        if span is not None and self.tracing is not None:
            self.tracing.answered(span, code)
            trace["trace_id"] = format(span.get_span_context().trace_id, "032x")
        if self.log_requests:
            _log.debug("request", call=name, code=code, seconds=round(seconds, 6), **trace)

    def begin_span(self, call_name: str, traceparent: str) -> Span | None:
        """The span of a request that has come; None if it is not traced."""
        return None if self.tracing is None else self.tracing.begin(call_name, traceparent)

    def drop_span(self, span: Span | None) -> None:
        """The caller of a request has gone before it was answered."""
        if span is not None and self.tracing is not None:
            self.tracing.gone(span)

    def hint(self, request: Any, result: Any) -> Header | None:
        """Where the partition is that a hot call was about, if another instance owns it; that one answers it sooner."""
        if not self.router.sight.has_others:
            return None
        partition = getattr(request, "partition", None)
        try:
            address = self.router.elsewhere(request.queue_name, result.partition if partition is None else partition)
        except QueratorError:
            return None  # it has moved meanwhile
        return ("Querator-Owner", address) if address else None

    def response(self, code: int, body: bytes, form: Form, keep_alive: bool, header: Header | None = None) -> bytes:
        """A whole answer of HTTP/1.1."""
        key = (code, form.answer_protobuf, keep_alive, header)
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            head = self._heads[key] = _head(code, form, keep_alive, header)
        return b"%b%b\r\nContent-Length: %d\r\n\r\n%b" % (head, self._date, len(body), body)


def location(error: Exception, path: str) -> Header | None:
    """For a caller that has to ask elsewhere."""
    return ("Location", f"http://{error.address}{path}") if isinstance(error, Redirected) else None


def _head(code: int, form: Form, keep_alive: bool, header: Header | None) -> bytes:
    lines = [
        f"HTTP/1.1 {code} {REASONS[code]}",
        f"Content-Type: {form.content_type}",
        ": ".join(NOSNIFF),
        f"Server: {SERVER}",
    ]
    if header is not None:
        lines.append(": ".join(header))
    if not keep_alive:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\nDate: ").encode("ascii")
