"""The fast door: where every connection starts, and where plain POSTs to hot calls are served without a framework.

At anything else the connection goes to aiohttp's own handler for good, with the bytes that nobody has answered yet,
and only while no answer is under way. This protocol then passes everything on, and watches the deadlines.

             ┌────────── whole head ─────────┐
    IDLE → HEAD → BODY → ANSWERING → IDLE …  │    HANDED: the same states, told by aiohttp's handler
      └──────┴── not plain ──────────────────┴──→ HANDED
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from aiohttp.web import RequestHandler, Server

from api.calls import failure
from api.forms import PLAIN, Form
from api.hall import Hall, Header, location
from api.heads import MAX_HEAD_BYTES, Head, Heads
from api.metrics import UNKNOWN_CALL
from querator.errors import Overloaded, QueratorError, Stopping, TimedOut

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from querator.telemetry import Tracing

_END_OF_HEAD = b"\r\n\r\n"
_START = b"POST /"
_MAX_AHEAD_BYTES = 65_536  # of the next requests, while one is answered


class State(enum.Enum):
    IDLE = "between two requests"
    HEAD = "reading a head"
    BODY = "reading a body"
    ANSWERING = "answering"
    CLOSED = "closed, or closing"


class Connection(asyncio.Protocol):
    """One connection. ``fast=False`` leaves all of it to aiohttp."""

    def __init__(self, hall: Hall, heads: Heads, full_server: Server, *, fast: bool) -> None:
        self._hall = hall
        self._heads = heads
        self._full_server = full_server
        self._fast = fast
        self._handler: RequestHandler | None = None  # aiohttp's, once it has taken over
        self._transport: asyncio.Transport
        self._buffer = bytearray()  # what has come and is not served yet
        self._needed = 0  # bytes of the request whose head is known
        self._state = State.IDLE
        self._since_s = monotonic()  # in this state
        self._blocked_since_s = 0.0  # the client does not read; 0: it does
        self._reading = True
        self._head: Head
        self._request: Any = None
        self._started_s = 0.0
        self._future: asyncio.Future[Any] | None = None
        self._span: Span | None = None  # of a request that is traced

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        hall = self._hall
        if hall.stopping and not hall.farewell:
            self._refuse(Stopping())
        elif len(hall.connections) >= hall.limits.connections:
            self._refuse(Overloaded(f"more than {hall.limits.connections} connections"))
        else:
            hall.connections.add(self)
            if not self._fast:
                self._hand_over(b"")

    def data_received(self, data: bytes) -> None:
        if self._handler is not None:
            if self._state is State.IDLE:
                self._enter(State.HEAD)
            self._handler.data_received(data)
        elif self._state is State.CLOSED:
            return
        elif self._buffer or self._state is State.ANSWERING or self._blocked_since_s:
            self._buffer += data
            self._more()
        else:
            self._look(data)

    def eof_received(self) -> bool | None:
        """Whoever stops sending has gone: the transport closes, and what waits for an answer is cancelled."""
        if self._handler is not None:
            self._handler.eof_received()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._state = State.CLOSED
        self._hall.left(self)
        future, self._future = self._future, None
        if future is not None:
            future.cancel()
        span, self._span = self._span, None
        self._hall.drop_span(span)
        if self._handler is not None:
            self._hall.handed.pop(self._handler, None)
            self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self._blocked_since_s = monotonic()
        if self._handler is not None:
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._blocked_since_s = 0.0
        if self._handler is not None:
            self._handler.resume_writing()
        elif self._state not in {State.ANSWERING, State.CLOSED}:
            self._continue()

    # Reading requests.

    def _more(self) -> None:
        """More has come of what was there in part."""
        if self._state is State.ANSWERING or self._blocked_since_s:
            if len(self._buffer) > _MAX_AHEAD_BYTES and self._reading:
                self._reading = False
                self._transport.pause_reading()
        elif len(self._buffer) >= self._needed:
            data, self._buffer = bytes(self._buffer), bytearray()
            self._look(data)

    def _continue(self) -> None:
        """Go on with what came while an answer was under way."""
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()
        if self._buffer and len(self._buffer) >= self._needed:
            data, self._buffer = bytes(self._buffer), bytearray()
            self._look(data)

    def _look(self, data: bytes) -> None:
        """Serve the whole requests at the beginning of ``data``, as long as each is answered at once."""
        while data:
            end = data.find(_END_OF_HEAD) + len(_END_OF_HEAD)
            if end < len(_END_OF_HEAD):
                self._keep_head(data)
                return
            head = self._heads.read(data[:end]) if end <= MAX_HEAD_BYTES else None
            if head is None:
                self._hand_over(data)
                return
            stop = end + head.length
            if len(data) < stop:
                self._buffer += data
                self._needed = stop
                self._enter(State.BODY)
                return
            self._needed = 0
            self._serve(head, data[end:stop])
            data = data[stop:]
            if self._state is not State.IDLE or self._blocked_since_s:
                self._buffer += data
                return

    def _keep_head(self, data: bytes) -> None:
        """A head that has not come whole; what cannot become a plain one is not waited for."""
        if not data.startswith(_START[: len(data)]) or len(data) > MAX_HEAD_BYTES or b"\n\n" in data:
            self._hand_over(data)
            return
        self._buffer += data
        if self._state is State.IDLE:
            self._enter(State.HEAD)

    def _hand_over(self, data: bytes) -> None:
        assert self._future is None
        self._buffer.clear()
        self._handler = handler = self._full_server()
        self._hall.handed[handler] = self
        handler.connection_made(self._transport)
        if self._blocked_since_s:
            handler.pause_writing()
        if data:
            if self._state is not State.HEAD:
                self._enter(State.HEAD)
            handler.data_received(data)

    # Answering them.

    def _serve(self, head: Head, body: bytes) -> None:
        self._head = head
        self._started_s = monotonic()
        self._state = State.ANSWERING
        tracing = self._hall.tracing
        if self._hall.stopping:
            self._fail(Stopping())
            return
        try:
            self._request, asked = (
                head.call.ask(body, head.form, self._hall.redirect)
                if tracing is None
                else self._ask_traced(head, body, tracing)
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered and logged there
            self._fail(error)
            return
        future = self._future = cast("asyncio.Future[Any]", asked)
        if future.done():
            self._answer(future)
        else:
            future.add_done_callback(self._answered)

    def _ask_traced(self, head: Head, body: bytes, tracing: Tracing) -> tuple[Any, Awaitable[Any]]:
        self._span = span = tracing.begin(head.call.name, head.traceparent)
        request, asked = head.call.ask(body, head.form, self._hall.redirect)
        if span is not None:
            tracing.asked(span, request, asked)
        return request, asked

    def _answered(self, future: asyncio.Future[Any]) -> None:
        if future is not self._future:  # the caller has gone, and does not hear of errors either
            if not future.cancelled():
                future.exception()
            return
        self._answer(future)
        if self._state is State.IDLE and not self._blocked_since_s:
            self._continue()

    def _answer(self, future: asyncio.Future[Any]) -> None:
        self._future = None
        request, self._request = self._request, None
        head = self._head
        try:
            result = future.result()
            body = head.call.answer(request, result, head.form)
        except asyncio.CancelledError:
            self._fail(self._hall.why_cancelled())
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered and logged there
            self._fail(error)
        else:
            self._send(200, body, self._hall.hint(request, result) if head.form.extended else None)

    def _fail(self, error: Exception) -> None:
        failed = failure(error, self._head.form, self._head.call.name)
        self._send(failed.code, failed.body, location(error, self._head.path))

    def _send(self, code: int, body: bytes, header: Header | None = None) -> None:
        head = self._head
        keep_alive = head.keep_alive and not self._hall.stopping
        self._state = State.IDLE
        self._transport.write(self._hall.response(code, body, head.form, keep_alive, header))
        span, self._span = self._span, None
        self._hall.observe(head.call.name, code, self._started_s, span)
        self._since_s = monotonic()
        if not keep_alive:
            self._close()

    def _refuse(self, error: QueratorError, form: Form = PLAIN) -> None:
        """Say why, and close. Only while no answer is under way."""
        failed = failure(error, form, "")
        self._transport.write(self._hall.response(failed.code, failed.body, form, keep_alive=False))
        self._hall.observe(UNKNOWN_CALL, failed.code, monotonic())
        self._close()

    def _close(self) -> None:
        self._state = State.CLOSED
        self._buffer.clear()
        self._transport.close()

    def _enter(self, state: State) -> None:
        self._state = state
        self._since_s = monotonic()

    # What aiohttp's handler tells of the requests that it serves.

    def handed_request(self) -> None:
        self._enter(State.ANSWERING)

    def handed_future(self, future: asyncio.Future[Any]) -> None:
        self._future = future

    def handed_answer(self) -> None:
        self._future = None
        if self._state is State.ANSWERING:
            self._enter(State.IDLE)

    # What the server calls.

    def sweep(self, now_s: float) -> None:
        limits = self._hall.limits
        passed_ms = (now_s - self._since_s) * 1000
        if self._blocked_since_s and (now_s - self._blocked_since_s) * 1000 > limits.body_timeout_ms:
            self._transport.abort()
        elif self._state is State.HEAD and passed_ms > limits.header_timeout_ms:
            self._refuse(TimedOut("the head of the request did not arrive in time"))
        elif self._state is State.BODY and passed_ms > limits.body_timeout_ms:
            self._refuse(TimedOut("the body of the request did not arrive in time"))
        elif self._state is State.IDLE and passed_ms > limits.idle_timeout_ms:
            self._close()

    def stop(self) -> None:
        if self._state is State.IDLE:
            self._close()

    def abort(self) -> None:
        self._transport.abort()
