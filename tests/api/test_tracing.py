"""Which requests are traced, through each door, and what their spans say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
import msgspec
import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, StatusCode

from api.calls import make_calls
from api.heads import Head, Heads
from querator import wire
from querator.items import Item
from querator.limits import Limits
from querator.telemetry import Tracing, read_traceparent
from querator.waist import Batch, StorageError
from tests.api.conftest import Api, running_api

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"}
NOT_SAMPLED = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-00"}


class Traced:
    """A server whose spans stay here."""

    def __init__(self, sample_ratio: float) -> None:
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider(sampler=ALWAYS_ON, shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(self._provider.get_tracer("test"), sample_ratio=sample_ratio, rng=Random(7))
        self.api: Api

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        [span] = self.spans(name)
        return span

    async def produce(self, headers: dict[str, str] | None = None) -> None:
        await self.api.ok("queue.produce", headers or {}, queue_name="mail", items=[{"utf8": "secret"}])

    def close(self) -> None:
        self._provider.shutdown()


@asynccontextmanager
async def traced_server(folder: Path, *, fast_door: bool, sample_ratio: float) -> AsyncIterator[Traced]:
    traced = Traced(sample_ratio)
    async with running_api(folder, fast_door=fast_door, tracing=traced.tracing) as traced.api:
        await traced.api.ok("queues.create", NOT_SAMPLED, queue_name="mail")
        yield traced
    traced.close()


@pytest.fixture
async def traced(tmp_path: Path, fast_door: bool) -> AsyncIterator[Traced]:
    """Traces only what callers ask for."""
    async with traced_server(tmp_path, fast_door=fast_door, sample_ratio=0.0) as running:
        yield running


@pytest.fixture
def events() -> Iterator[list[structlog.typing.EventDict]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return int(span.parent.span_id)


async def test_a_sampled_request_is_followed_to_its_commit(traced: Traced) -> None:
    """The server's span is below its caller's, and the wait and the commit are below the server's."""
    await traced.produce(SAMPLED)
    server, inbox, commit = traced.span("queue.produce"), traced.span("inbox"), traced.span("commit")
    assert server.context is not None
    assert f"{server.context.trace_id:032x}" == TRACE_ID
    assert f"{parent_of(server):016x}" == SPAN_ID
    assert parent_of(inbox) == parent_of(commit) == id_of(server)
    assert server.kind is SpanKind.SERVER
    assert server.attributes == {
        "messaging.system": "querator",
        "messaging.operation.name": "produce",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.batch.message_count": 1,
        "http.response.status_code": 200,
    }
    attributes = dict(commit.attributes or {})
    assert isinstance(epoch := attributes.pop("querator.epoch"), int)
    assert epoch > 0
    assert attributes == {
        "messaging.system": "querator",
        "messaging.destination.name": "mail",
        "messaging.destination.partition.id": "0",
        "querator.backend": "memory-0",
        "querator.commit.number": 1,
        "querator.turn.requests": 1,
    }
    assert [link.context.span_id for link in inbox.links] == [id_of(commit)]


async def test_what_its_caller_does_not_sample_is_not_traced(traced: Traced) -> None:
    """Neither a request whose caller decided against it, nor one without a caller at the ratio 0, makes a span."""
    await traced.produce(NOT_SAMPLED)
    await traced.produce()
    assert not traced.spans("queue.produce")
    assert not traced.spans("commit")


async def test_what_has_no_caller_is_sampled_by_the_ratio(tmp_path: Path, fast_door: bool) -> None:
    """At the ratio 1 every request that nobody decided about begins a trace, also one whose `traceparent` is broken."""
    async with traced_server(tmp_path, fast_door=fast_door, sample_ratio=1.0) as traced:
        await traced.produce()
        await traced.produce({"traceparent": "00-nonsense"})
        await traced.produce(NOT_SAMPLED)
        assert [span.parent for span in traced.spans("queue.produce")] == [None, None]


async def test_errors_are_in_the_span(traced: Traced) -> None:
    """A request that is refused has its code in the span; it is no error of the server."""
    answered = await traced.api.call("queue.complete", SAMPLED, queue_name="mail", ids=["nonsense"])
    assert answered.status == 400
    span = traced.span("queue.complete")
    assert span.attributes is not None
    assert (span.attributes["http.response.status_code"], span.attributes["error.type"]) == (400, "400")
    assert span.status.status_code is StatusCode.UNSET


async def test_a_failed_commit_is_in_the_trace(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that fails is a span with an error; the one that lands for the same request follows it."""
    stored = traced.api.router._host.logical_queues("mail")[0].members[0].state.stored
    commit = stored.commit
    failures = [StorageError("disk is full")]

    async def fail_once(batch: Batch) -> None:
        if failures:
            raise failures.pop()
        await commit(batch)

    monkeypatch.setattr(stored, "commit", fail_once)
    await traced.produce(SAMPLED)
    failed, landed = traced.spans("commit")
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "StorageError"
    assert (failed.status.status_code, landed.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert parent_of(failed) == parent_of(landed)


async def test_a_caller_that_goes_ends_its_span(traced: Traced) -> None:
    """The span of a reserve ends when its caller has gone, and nothing of it is kept."""
    body = msgspec.json.encode({"queue_name": "mail", "batch_size": 1, "client_id": "c", "request_timeout": "60s"})
    headers = {"Content-Type": "application/json", **SAMPLED}
    async with aiohttp.ClientSession() as session:
        asking = asyncio.create_task(session.post(f"{traced.api.url}/v1/queue.reserve", data=body, headers=headers))
        await until(lambda: bool(traced.tracing._followed))
        asking.cancel()
        await asyncio.wait([asking])
    await until(lambda: bool(traced.spans("queue.reserve")))
    await until(lambda: not traced.tracing._followed)
    span = traced.span("queue.reserve")
    assert span.attributes is not None
    assert span.attributes["error.type"] == "caller has gone"


async def until(is_so: Callable[[], bool]) -> None:
    """Let the loop run until it is so."""
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.001)


async def test_one_commit_has_links_to_all_its_requests(tmp_path: Path) -> None:
    """Requests of one turn share a span for their commit, below the first, and each of their waits leads to it."""
    async with traced_server(tmp_path, fast_door=True, sample_ratio=1.0) as traced:
        spans, futures = [], []
        for _ in range(3):
            span = traced.tracing.begin("queue.produce", "")
            assert span is not None
            future = traced.api.router.produce("mail", [Item(payload=b"secret")], [], 6, 60_000)
            traced.tracing.asked(span, wire.ProduceRequest(queue_name="mail"), future)
            spans.append(span)
            futures.append(future)
        await asyncio.gather(*futures)
        for span in spans:
            traced.tracing.answered(span, 200)
        commit = traced.span("commit")
        first, *others = (span.get_span_context().span_id for span in spans)
        assert parent_of(commit) == first
        assert [link.context.span_id for link in commit.links] == others
        assert commit.attributes is not None
        assert commit.attributes["querator.turn.requests"] == 3
        inboxes = traced.spans("inbox")
        assert [parent_of(inbox) for inbox in inboxes] == [first, *others]
        assert {link.context.span_id for inbox in inboxes for link in inbox.links} == {id_of(commit)}


async def test_the_log_names_the_trace(traced: Traced, events: list[structlog.typing.EventDict]) -> None:
    """At debug the event of a traced request has its trace, and that of another has none."""
    traced.api.server.log_requests(True)
    await traced.produce(SAMPLED)
    await traced.produce()
    told = [event.get("trace_id") for event in events if event["event"] == "request"]
    assert told == [TRACE_ID, None]


def head(traceparent: str) -> bytes:
    lines = ["POST /v1/queue.produce HTTP/1.1", "Host: h", *([traceparent] if traceparent else []), "Content-Length: 5"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def test_heads_are_kept_without_their_trace(api: Api) -> None:
    """A head that differs in nothing but its trace is parsed once, and each time has its own trace."""
    heads = Heads(make_calls(router=api.router, limits=Limits()))
    plain = heads.read(head(""))
    assert isinstance(plain, Head)
    for span_id in range(1, 4):
        traceparent = f"00-{TRACE_ID}-{span_id:016x}-01"
        assert heads.read(head(f"traceparent: {traceparent}")) == plain._replace(traceparent=traceparent)
        assert heads.read(head(f"Traceparent:{traceparent}")) == plain._replace(traceparent=traceparent)
    assert len(heads._kept) == 1


@pytest.mark.parametrize(
    "line",
    [
        f"traceparent: 00-{TRACE_ID}-{SPAN_ID}-01\r\n Transfer-Encoding: chunked",
        f"traceparent: 00-{TRACE_ID}-{SPAN_ID}-01\r\nTransfer-Encoding: chunked",
        f"traceparent: 00-{TRACE_ID}-{SPAN_ID}-01\r\nContent-Length: 7",
        f"traceparent: 00-{TRACE_ID}-{SPAN_ID}-01\nX: y",
    ],
)
async def test_a_trace_hides_no_other_header(api: Api, line: str) -> None:
    """What stands beside a trace makes a head unusual as it does without one."""
    heads = Heads(make_calls(router=api.router, limits=Limits()))
    assert heads.read(head(line)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID.upper()}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{SPAN_ID}-01\n",
    ],
)
def test_a_broken_traceparent_is_none(text: str) -> None:
    """Only what the standard calls valid names a caller."""
    assert read_traceparent(text) is None
