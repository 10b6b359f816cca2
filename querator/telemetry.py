"""Traces of the server: which requests are followed, and what is told of them. How they leave is in `querator.span_export`.

Without a collector there is no `Tracing` at all. With one, a request that is not sampled costs no span.
"""

from __future__ import annotations

import asyncio
import re
from random import Random
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from querator import span_names as names
from querator.turn import Turn
from querator.waist import Batch

if TYPE_CHECKING:
    from querator.config import TelemetryConfig
    from querator.span_export import SpanExport

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def read_traceparent(text: str) -> SpanContext | None:
    """The caller's span; None if there is none that is valid."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in match.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None


class Tracing:
    """Follows requests from a door to the commit. Lives on the event loop; nothing here waits."""

    def __init__(self, tracer: Tracer, *, sample_ratio: float, rng: Random) -> None:
        self._tracer = tracer
        self._sample_ratio = sample_ratio
        self._rng = rng
        self._followed: dict[asyncio.Future[Any], Span] = {}  # by what answers the request

    def begin(self, call_name: str, traceparent: str) -> Span | None:
        """A request has come. None if it is not to be traced: so its caller decided, or chance."""
        caller = read_traceparent(traceparent) if traceparent else None
        if caller is None:
            if self._rng.random() >= self._sample_ratio:
                return None
            context = Context()
        elif caller.trace_flags.sampled:
            context = set_span_in_context(NonRecordingSpan(caller), Context())
        else:
            return None
        attributes = names.operation_attributes(names.operation_of(call_name))
        return self._tracer.start_span(call_name, context, SpanKind.SERVER, attributes)

    def asked(self, span: Span, request: Any, answer: object) -> None:
        """The request was read; what answers it, if that is a future, is known to the turn that takes it."""
        span.set_attributes(names.request_attributes(request))
        if isinstance(answer, asyncio.Future):
            self._followed[answer] = span
            answer.add_done_callback(self._forget)

    def _forget(self, future: asyncio.Future[Any]) -> None:
        self._followed.pop(future, None)

    @staticmethod
    def answered(span: Span, code: int) -> None:
        """The end of a request. That a caller is to try again is no error of the server."""
        span.set_attribute(names.STATUS_CODE, code)
        if code >= 400:
            span.set_attribute(names.ERROR_TYPE, str(code))
        if code >= 500:
            span.set_status(StatusCode.ERROR)
        span.end()

    @staticmethod
    def gone(span: Span) -> None:
        """The caller did not wait for its answer."""
        span.set_attribute(names.ERROR_TYPE, "caller has gone")
        span.end()

    def commit(self, queue_name: str, turn: Turn, batch: Batch) -> CommitSpan | None:
        """One span for the commit, below the first request of the turn that is traced, with links to the others."""
        if not self._followed:
            return None
        spans = [span for request, _ in turn.answers if (span := self._followed.get(request.future)) is not None]
        if not spans:
            return None
        place = turn.state.place
        attributes: names.Attributes = {
            names.SYSTEM: names.SYSTEM_NAME,
            names.DESTINATION: queue_name,
            names.PARTITION_ID: str(place.number),
            names.BACKEND: place.backend,
            names.EPOCH: place.epoch,
            names.COMMIT_NUMBER: batch.number,
            names.TURN_REQUESTS: len(turn.answers),
        }
        commit = self._tracer.start_span(
            names.COMMIT_SPAN,
            set_span_in_context(spans[0], Context()),
            attributes=attributes,
            links=[Link(span.get_span_context()) for span in spans[1:]],
        )
        for span in spans:
            self._waited(span, commit)
        return CommitSpan(commit)

    def _waited(self, span: Span, commit: Span) -> None:
        """The time from a request's arrival to its turn, with a link to the commit, which may be in another trace."""
        self._tracer.start_span(
            names.INBOX_SPAN,
            set_span_in_context(span, Context()),
            links=[Link(commit.get_span_context())],
            start_time=getattr(span, "start_time", None),
        ).end()


class CommitSpan:
    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, error: BaseException | None) -> None:
        if error is not None:
            self._span.set_attribute(names.ERROR_TYPE, type(error).__name__)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class Telemetry:
    """What traces need while the server runs. `close` at the end; closing twice is allowed."""

    def __init__(self, tracing: Tracing | None = None, export: SpanExport | None = None) -> None:
        self.tracing = tracing  # None: nothing is traced
        self._export = export

    async def close(self) -> None:
        """Send what is left, within a bounded time."""
        if self._export is not None:
            await self._export.close()


def set_up_telemetry(config: TelemetryConfig) -> Telemetry:
    """Without a collector in the configuration nothing is traced, and nothing is paid for it."""
    if not config.otlp_endpoint:
        return Telemetry()
    from querator.span_export import SpanExport

    export = SpanExport(config.otlp_endpoint, config.service_name)
    rng = Random()  # noqa: S311 - which requests are traced is no secret
    return Telemetry(Tracing(export.tracer, sample_ratio=config.sample_ratio, rng=rng), export)
