"""Traces from a user's program through a real server to the commit, as a collector gets them by OTLP."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from querator import Client
from tests.crash.server import Server, server_in

PATIENCE_S = 60

PROGRAM = """
import asyncio, sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from querator import Client, Worker

url, endpoint = sys.argv[1:]
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=True)))
trace.set_tracer_provider(provider)


async def main():
    async with Client(url) as client:
        await client.create_queue("mail")
        with provider.get_tracer("program").start_as_current_span("order"):
            await client.produce("mail", ["hidden-payload", "hidden-payload"])
        worker = Worker(client, handle_signals=False)
        done = []

        @worker.handler("mail", batch_size=2)
        async def handle(item):
            done.append(trace.get_current_span().get_span_context().span_id)
            if len(done) == 2:
                worker.stop()

        await worker.serve()
    provider.shutdown()
    print(*(format(span_id, "016x") for span_id in done))


asyncio.run(main())
"""


class Collector(TraceServiceServicer):
    """Stands in for an OTLP collector."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.endpoint = ""
        self._news = asyncio.Event()

    async def Export(  # noqa: N802 - the name of the call
        self, request: ExportTraceServiceRequest, context: object
    ) -> ExportTraceServiceResponse:
        for resource in request.resource_spans:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.services.add(names["service.name"])
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        self._news.set()
        return ExportTraceServiceResponse()

    async def has(self, *names: str) -> None:
        """Wait until spans with all these names have come."""
        async with asyncio.timeout(PATIENCE_S):
            while not {span.name for span in self.spans} >= set(names):
                self._news.clear()
                await self._news.wait()

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Span:
        [span] = self.named(name)
        return span


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    collector = Collector()
    server = grpc.aio.server()
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]  # it is generated
    collector.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield collector
    await server.stop(None)


@asynccontextmanager
async def traced_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, **options: str
) -> AsyncIterator[Server]:
    """A server that sends its traces there; they have all left when it has stopped."""
    settings = {"TELEMETRY_OTLP_ENDPOINT": endpoint, "TELEMETRY_SERVICE_NAME": "querator-test", **options}
    for name, value in settings.items():
        monkeypatch.setenv(f"QUERATOR_{name}", value)
    async with server_in(folder) as server:
        await server.start()
        yield server
        assert await server.stop() == 0


async def run(program: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE_S):
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


def attributes_of(span: Span) -> dict[str, str | int]:
    return {
        each.key: each.value.int_value if each.value.HasField("int_value") else each.value.string_value
        for each in span.attributes
    }


@pytest.mark.parametrize("fast_door", ["true", "false"])
async def test_one_trace_from_the_program_to_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector, fast_door: str
) -> None:
    """A produce is one trace: the program, the client, the server, the wait and the commit, each below the one before."""
    async with traced_server(tmp_path, monkeypatch, collector.endpoint, FAST_DOOR=fast_door) as server:
        handled = (await run(PROGRAM, server.url, collector.endpoint)).split()
        await collector.has("queue.produce", "inbox", "commit")
    order, client, request = collector.one("order"), collector.one("produce mail"), collector.one("queue.produce")
    below = [span for span in collector.spans if span.parent_span_id == request.span_id]
    assert {span.name for span in below} == {"inbox", "commit"}
    assert {span.trace_id for span in (client, request, *below)} == {order.trace_id}
    assert (client.parent_span_id, request.parent_span_id) == (order.span_id, client.span_id)
    assert (client.kind, request.kind) == (Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_SERVER)
    assert attributes_of(client) == {
        "messaging.system": "querator",
        "messaging.operation.name": "produce",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.batch.message_count": 2,
    }
    [commit] = [span for span in below if span.name == "commit"]
    assert attributes_of(commit)["querator.backend"] == "local-0"
    assert "querator-test" in collector.services
    assert_work_is_linked(collector, handled)
    assert not [span for span in collector.spans if b"hidden-payload" in span.SerializeToString()]


def assert_work_is_linked(collector: Collector, handled: list[str]) -> None:
    """Each handler ran in a consumer's span, with a link to the reserve that brought its item."""
    reserves = {span.span_id for span in collector.named("reserve mail")}
    work = collector.named("process mail")
    assert {span.span_id.hex() for span in work} == set(handled)
    assert len(work) == 2
    assert {span.kind for span in work} == {Span.SPAN_KIND_CONSUMER}
    assert {link.span_id for span in work for link in span.links} <= reserves
    assert all(len(span.links) == 1 for span in work)


async def test_a_collector_that_is_not_there_disturbs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are answered and the server stops in order without a collector, and says once that traces are lost."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{nobody.getsockname()[1]}"
        async with traced_server(tmp_path, monkeypatch, endpoint) as server, Client(server.url) as client:
            await client.create_queue("mail")
            await client.produce("mail", "a")
            assert [item.text for item in await client.reserve("mail")] == ["a"]
    log = server.log.read_text()
    said = [log.count(event) for event in ("traces cannot be exported", "traces were cut off")]
    assert sum(said) >= 1
    assert max(said) == 1
    assert "Traceback" not in log
