"""Spans of the client and the worker, in a program that uses OpenTelemetry. In any other there is nothing of it here.

Only what the program has imported itself is used: without that nobody could have set it up, and there is nothing to pay.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from querator import span_names as names
from querator.client_items import ReservedItem
from querator.errors import QueratorError, TimedOut
from querator.version import VERSION

_API: Final = "opentelemetry.trace"

_last_call: ContextVar[Any] = ContextVar("querator_last_call", default=None)


class CallSpan:
    """The span of one call, with all its attempts."""

    __slots__ = ("_operation", "_span", "headers")

    def __init__(self, span: Any, operation: names.Operation) -> None:
        self._span = span
        self._operation = operation
        self.headers = _headers(span.get_span_context())  # by which the server knows the caller

    def answered(self, answer: Any) -> None:
        if self._operation.type == "receive":
            self._span.set_attribute(names.BATCH_COUNT, len(answer.items))

    def failed(self, error: BaseException) -> None:
        if not (self._operation.type == "receive" and isinstance(error, TimedOut)):  # which is how a queue is empty
            _fail(self._span, error)


@contextmanager
def call_span(method: str, request: object) -> Iterator[CallSpan | None]:
    """Runs a call of the API in a span; None if the program does not use OpenTelemetry."""
    trace = sys.modules.get(_API)
    if trace is None:
        yield None
        return
    operation = names.operation_of(method)
    attributes = names.operation_attributes(operation) | names.request_attributes(request)
    kind = trace.SpanKind.PRODUCER if operation.type == "send" else trace.SpanKind.CLIENT
    name = f"{operation.name} {attributes[names.DESTINATION]}" if operation.type else method
    with _run(trace, name, kind, attributes) as span:
        call = CallSpan(span, operation)
        try:
            yield call
        except BaseException as error:
            call.failed(error)
            raise
        finally:
            _last_call.set(span.get_span_context())


def last_call() -> Any:
    """What a span needs to know for a link to the last call that this task has made; None if that has no span."""
    return _last_call.get() if _API in sys.modules else None


@contextmanager
def handler_span(item: ReservedItem, reserved: Any) -> Iterator[None]:
    """Runs a handler in a span with a link to the call that reserved its item."""
    trace = sys.modules.get(_API)
    if trace is None:
        yield
        return
    attributes = names.operation_attributes(names.PROCESS) | {
        names.DESTINATION: item.queue_name,
        names.PARTITION_ID: str(item.partition),
        names.MESSAGE_ID: item.id,
        names.ATTEMPTS: item.attempts,
    }
    links = [trace.Link(reserved)] if reserved is not None and reserved.is_valid else []
    name = f"{names.PROCESS_SPAN} {item.queue_name}"
    with _run(trace, name, trace.SpanKind.CONSUMER, attributes, links) as span:
        try:
            yield
        except BaseException as error:
            _fail(span, error)
            raise


@contextmanager
def _run(trace: Any, name: str, kind: Any, attributes: names.Attributes, links: Any = ()) -> Iterator[Any]:
    tracer = trace.get_tracer(names.SCOPE, VERSION)
    span = tracer.start_span(name, kind=kind, attributes=attributes, links=links)
    # What went wrong is told by the caller: an error's text may quote what a handler worked on.
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        yield span


def _fail(span: Any, error: BaseException) -> None:
    trace: Any = sys.modules[_API]
    span.set_attribute(
        names.ERROR_TYPE, str(error.code) if isinstance(error, QueratorError) else type(error).__qualname__
    )
    span.set_status(trace.StatusCode.ERROR)


def _headers(context: Any) -> dict[str, str]:
    if not context.is_valid:
        return {}
    return {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
