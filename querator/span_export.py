"""The way of spans to an OTLP collector: in batches, from a thread of its own, and never at the cost of a request."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import socket
import threading
from collections.abc import Sequence
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from querator import span_names as names
from querator.version import VERSION

_EXPORT_TIMEOUT_S: Final = 5.0
_EXPORT_EVERY_MS: Final = 1000
_FLUSH_S: Final = 2.0  # what a stop waits for the last spans to leave
_CUT_OFF_S: Final = 1.0  # and then for the exporter to give up

_log = structlog.get_logger(__name__)


class SpanExport:
    """Makes spans by its `tracer`, and sends them. `close` at the end; closing twice is allowed."""

    def __init__(self, endpoint: str, service_name: str) -> None:
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False  # what fails is said once, below
        logger.addHandler(logging.NullHandler())
        self._exporter = _Exporter(endpoint)
        self._processor = BatchSpanProcessor(self._exporter, schedule_delay_millis=_EXPORT_EVERY_MS)
        resource = Resource.create(
            {
                names.SERVICE_NAME: service_name,
                names.SERVICE_VERSION: VERSION,
                names.SERVICE_INSTANCE: f"{socket.gethostname()}-{os.getpid()}",
            }
        )
        # What is sampled is decided before there is a span, by `querator.telemetry`.
        provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        self.tracer = provider.get_tracer(names.SCOPE, VERSION)
        self._closed = False

    async def close(self) -> None:
        """Send what is left, for as long as a stop may wait; a collector that hangs holds up nothing."""
        if self._closed:
            return
        self._closed = True
        ended: concurrent.futures.Future[None] = concurrent.futures.Future()

        def end() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]  # it publishes no types here
            ended.set_result(None)

        threading.Thread(target=end, name="querator-span-export-close", daemon=True).start()
        waiting = asyncio.wrap_future(ended)
        await asyncio.wait((waiting,), timeout=_FLUSH_S)
        if not waiting.done():
            _log.warning("traces were cut off")
            self._exporter.shutdown()
            await asyncio.wait((waiting,), timeout=_CUT_OFF_S)


class _Exporter(SpanExporter):
    """Says once that it cannot send, and once that it can again."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        insecure = not endpoint.startswith("https://")
        self._inner = OTLPSpanExporter(endpoint=endpoint, insecure=insecure, timeout=_EXPORT_TIMEOUT_S)
        self._failing = False
        self._is_shut_down = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._failing and not self._is_shut_down.is_set():
            _log.warning("traces cannot be exported", endpoint=self._endpoint)
        elif self._failing and not failed:
            _log.info("traces are exported again", endpoint=self._endpoint)
        self._failing = failed
        return result

    def shutdown(self) -> None:
        if not self._is_shut_down.is_set():
            self._is_shut_down.set()
            self._inner.shutdown()
