"""The gRPC door: the same calls, limits and errors as by HTTP, with gRPC's own ways around them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from api.codec import MESSAGES
from api.grpc_door import GrpcDoor
from querator import errors, wire
from querator.limits import Limits
from querator.waist import Health
from tests.api.conftest import PROTOBUF, Api, running_api
from tests.api.grpc_client import EXTENDED, PATIENCE_S, Grpc, envelope_of, eventually, grpc_to

SERVICE = "querator.v1.Queue"
Send = Callable[..., Awaitable[Any]]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with running_api(tmp_path, grpc=True) as running:
        await running.ok("queues.create", queue_name="mail")
        yield running


@pytest.fixture
async def rpc(api: Api) -> AsyncIterator[Grpc]:
    async with grpc_to(api.server) as calls:
        yield calls


async def refused(rpc: Grpc, name: str, body: bytes | None = None, /, **fields: Any) -> tuple[grpc.StatusCode, Any]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rpc.begin(name, body, **fields)
    return caught.value.code(), envelope_of(caught.value)


# The same calls.


async def tell(send: Send) -> list[tuple[str, Any]]:
    """A story in which every call has its part, told through one door: what each was answered."""
    told: list[tuple[str, Any]] = []

    async def ask(name: str, **fields: Any) -> Any:
        answer = await send(name, **fields)
        told.append((name, answer))
        return answer

    await ask("queues.create", queueName="dead")
    await ask("queues.create", queueName="work", deadQueue="dead", leaseTimeout="1h")
    await ask("queues.update", queueName="work", maxAttempts=5)
    await ask("queue.produce", queueName="work", items=[{"bytes": b"%d" % number, "kind": "k"} for number in range(5)])
    await ask("queue.produce", queueName="work", items=[{"utf8": "x", "enqueueAt": {"seconds": 4_000_000_000}}])
    first = await ask("queue.reserve", queueName="work", batchSize=2, clientId="c")
    second = await ask("queue.lease", queueName="work", batchSize=1, clientId="c")
    await ask("queue.renew", queueName="work", ids=[first.items[0].id], leaseTimeout="2h")
    await ask("queue.complete", queueName="work", ids=[first.items[0].id])
    await ask("queue.complete", queueName="work", ids=["no id"])
    await ask(
        "queue.retry", queueName="work", items=[{"id": second.items[0].id, "retryAt": {"seconds": 4_000_000_000}}]
    )
    await ask("queue.stats", queueName="work")
    await ask("queues.info", queueName="work")
    await ask("queues.list", limit=2)
    listed = await ask("storage/items.list", queueName="work")
    await ask("storage/scheduled.list", queueName="work")
    await ask("storage/items.import", queueName="work", items=[{"payload": b"new"}])
    await ask("storage/items.delete", queueName="work", ids=[listed.items[-1].id])
    await ask("storage.list")
    await ask("cluster.info", limit=1)
    await ask("cluster.route", queueName="work")
    await ask("queue.pause", queueName="work", reserve=True)
    await ask("queue.resume", queueName="work")
    await ask("queue.reload", queueName="work")
    await ask("queue.clear", queueName="work", queue=True, scheduled=True, destructive=True)
    await ask("queues.delete", queueName="work", force=True)
    await ask("config.reload")
    for name in sorted(set(wire.SHAPES) - {name for name, _ in told}):
        await ask(name)
    return told


def plain(answer: Any) -> Any:
    """An answer without what differs from run to run: ids, instances, instants and durations."""
    if isinstance(answer, tuple):
        return answer
    text = repr(MessageToDict(answer))
    text = re.sub(r"'[0-7][0-9a-f]{22}'", "ID", text)
    text = re.sub(r"'[0-9a-f]{8}'", "INSTANCE", text)
    return re.sub(r"'\d{4}-\d\d-\d\dT[^']*'|'[\d.]+(ms|s|m|h)'", "TIME", text)


async def test_every_call_is_answered_as_by_http(api: Api, tmp_path: Path) -> None:
    """A story that calls everything gets the same answers and errors through gRPC and through HTTP."""

    async def by_http(name: str, **fields: Any) -> Any:
        shape = wire.SHAPES[name]
        body = MESSAGES[shape.request.__name__](**fields).SerializeToString()
        answered = await api.send(f"/v1/{name}", body, {"Content-Type": PROTOBUF, "Accept": PROTOBUF})
        kind = MESSAGES[shape.answer.__name__ if answered.status == 200 else "Envelope"]
        answer: Any = kind.FromString(answered.body)
        return answer if answered.status == 200 else (answer.code, answer.codeText, answer.message)

    (tmp_path / "other").mkdir()
    async with running_api(tmp_path / "other", grpc=True) as other, grpc_to(other.server) as rpc:
        await other.ok("queues.create", queue_name="mail")

        async def by_grpc(name: str, **fields: Any) -> Any:
            try:
                return await rpc.call(name, **fields)
            except grpc.aio.AioRpcError as error:
                envelope = envelope_of(error)
                return (envelope.code, envelope.codeText, envelope.message)

        told = [(name, plain(answer)) for name, answer in await tell(by_grpc)]
    assert told == [(name, plain(answer)) for name, answer in await tell(by_http)]
    assert {name for name, _ in told} == set(wire.SHAPES)


async def test_extended_answers(rpc: Grpc) -> None:
    """The metadata `querator-extended: 1` adds the same fields as the header of HTTP."""
    items = [{"utf8": "x"}, {"utf8": "y"}]
    assert not (await rpc.call("queue.produce", queueName="mail", items=items)).ids
    assert len((await rpc.call("queue.produce", EXTENDED, queueName="mail", items=items)).ids) == 2


async def test_calls_are_counted(api: Api, rpc: Grpc) -> None:
    """A call through gRPC is in the same metrics as one through HTTP, with its code."""
    await rpc.call("queues.info", queueName="mail")
    await refused(rpc, "queues.info", queueName="nowhere")
    metrics = (await api.send("/metrics", None, method="GET")).body.decode()
    assert 'querator_requests_total{call="queues.info",code="200"} 1.0' in metrics
    assert 'querator_requests_total{call="queues.info",code="400"} 1.0' in metrics


# Errors.


def kinds() -> list[type[errors.QueratorError]]:
    found, waiting = [], [errors.QueratorError]
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting += kind.__subclasses__()
    return found


def test_every_code_has_one_status() -> None:
    """Each error names a status of gRPC, errors of one code the same, and only what may be repeated is UNAVAILABLE."""
    by_code: dict[int, str] = {}
    for kind in kinds():
        assert kind.grpc_status in grpc.StatusCode.__members__, kind
        assert by_code.setdefault(kind.code, kind.grpc_status) == kind.grpc_status, kind
        assert kind.retryable or kind.grpc_status not in {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}, kind


async def test_errors(api: Api, rpc: Grpc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its status, and its whole envelope in the metadata."""
    status = grpc.StatusCode
    answer = await refused(rpc, "queues.info", queueName="nowhere")
    assert (answer[0], answer[1].code, answer[1].codeText) == (status.INVALID_ARGUMENT, 400, "Bad Request")
    assert answer[1].message == "queue does not exist; no queue is named 'nowhere'"
    assert (await refused(rpc, "queues.info", queueName="ä ö"))[1].message.startswith("queue_name is invalid; ")
    answer = await refused(rpc, "queues.create", queueName="mail")
    assert (answer[0], answer[1].code) == (status.FAILED_PRECONDITION, 409)
    answer = await refused(rpc, "config.reload")
    assert (answer[0], answer[1].code) == (status.FAILED_PRECONDITION, 453)
    answer = await refused(rpc, "queue.reserve", queueName="mail", batchSize=1, clientId="c", requestTimeout="10ms")
    assert (answer[0], answer[1].code) == (status.UNAVAILABLE, 454)
    answer = await refused(rpc, "queue.produce", b"\xff\xff\xff")
    assert (answer[0], answer[1].code) == (status.INVALID_ARGUMENT, 455)

    async def broken(_queue_name: str) -> None:
        raise ValueError("a secret")

    monkeypatch.setattr(api.router, "queue_stats", broken)
    answer = await refused(rpc, "queue.stats", queueName="mail")
    assert (answer[0], answer[1].code, answer[1].message) == (status.INTERNAL, 500, "Internal Error")


async def test_unknown_methods(rpc: Grpc) -> None:
    """What is no call is UNIMPLEMENTED."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rpc.channel.unary_unary(f"/{SERVICE}/QueueEat")(b"", timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_bodies_have_the_limits_of_http(rpc: Grpc) -> None:
    """A call takes as much as by HTTP, and says so when it is more; a long message is cut, not lost."""
    code, envelope = await refused(rpc, "queue.complete", b"\0" * 256_001)
    assert (code, envelope.message) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "body is too large; queue.complete takes at most 256000 bytes",
    )
    code, envelope = await refused(rpc, "queue.complete", queueName="mail", ids=["x" * 100_000])
    assert envelope.code == 400
    assert len(envelope.message) < 2000


async def test_large_answers_arrive(rpc: Grpc) -> None:
    """An answer may be larger than the four megabytes that gRPC allows by default."""
    items = [{"bytes": b"x" * 1_000_000}] * 4
    await rpc.call("queue.produce", queueName="mail", items=items)
    await rpc.call("queue.produce", queueName="mail", items=items)
    reserved = await rpc.call("queue.reserve", queueName="mail", batchSize=8, clientId="c")
    assert [len(item.bytes) for item in reserved.items] == [1_000_000] * 8


# Callers that go, and time.


async def waiting_reserves(api: Api) -> int:
    stats = await api.router.queue_stats("mail")
    return sum(each.reserve_waiting for each in stats.logical_queues)


async def test_a_cancelled_reserve_waits_no_longer(api: Api, rpc: Grpc) -> None:
    """Its place is free at once, and no item goes to it."""
    call = rpc.begin("queue.reserve", queueName="mail", batchSize=1, clientId="c", requestTimeout="1m")

    async def waits() -> bool:
        return await waiting_reserves(api) == 1

    async def is_free() -> bool:
        return await waiting_reserves(api) == 0

    await eventually(waits)
    call.cancel()
    await eventually(is_free)
    await rpc.call("queue.produce", queueName="mail", items=[{"utf8": "x"}])
    assert (await rpc.call("queue.reserve", queueName="mail", batchSize=1, clientId="d")).items[0].attempts == 1


async def test_a_deadline_bounds_the_request_timeout(api: Api, rpc: Grpc) -> None:
    """A reserve that could wait for minutes ends when its caller's deadline passes."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rpc.begin("queue.reserve", queueName="mail", batchSize=1, clientId="c", requestTimeout="15m", timeout=0.2)
    assert caught.value.code() in {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}

    async def is_free() -> bool:
        return await waiting_reserves(api) == 0

    await eventually(is_free)


async def test_a_wrong_timeout_is_refused_under_any_deadline(rpc: Grpc) -> None:
    """A deadline makes no wrong `request_timeout` right."""
    for wrong in ("16m", "soon"):
        answer = await refused(rpc, "queue.produce", queueName="mail", items=[{}], requestTimeout=wrong)
        assert answer[1].message.startswith("request_timeout is invalid; ")


async def test_what_changes_queues_goes_on_without_its_caller(
    api: Api, rpc: Grpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A create whose caller goes away in the middle is carried to its end."""
    begun, gate, create = asyncio.Event(), asyncio.Event(), api.router.management.create_queue

    async def slow(settings: Any) -> Any:
        begun.set()
        await gate.wait()
        return await create(settings)

    monkeypatch.setattr(api.router.management, "create_queue", slow)
    call = rpc.begin("queues.create", queueName="new")
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.set()

    async def is_there() -> bool:
        return (await api.call("queues.info", queue_name="new")).status == 200

    await eventually(is_there)


async def test_a_stop_answers_what_waits(api: Api, rpc: Grpc) -> None:
    """A waiting reserve is told that the instance stops, and may be sent elsewhere."""
    call = rpc.begin("queue.reserve", queueName="mail", batchSize=1, clientId="c", requestTimeout="1m")

    async def waits() -> bool:
        return await waiting_reserves(api) == 1

    await eventually(waits)
    await api.server.stop()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert envelope_of(caught.value).message.startswith("instance is stopping; ")


async def test_a_stop_lets_what_runs_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is under way when the stop begins is answered."""
    async with running_api(tmp_path, grpc=True, limits=Limits(stop_grace_ms=60_000)) as api, grpc_to(api.server) as rpc:
        begun, gate, listing = asyncio.Event(), asyncio.Event(), api.router.list_queues

        async def slow(*arguments: Any) -> Any:
            begun.set()
            await gate.wait()
            return await listing(*arguments)

        monkeypatch.setattr(api.router, "list_queues", slow)
        call = rpc.begin("queues.list")
        await begun.wait()
        stop = asyncio.ensure_future(api.server.stop())

        async def has_begun() -> bool:
            return api.server._hall.stopping

        await eventually(has_begun)
        gate.set()
        assert await call == b""
        await stop


# What gRPC's tools expect.


async def test_reflection_shows_the_service(rpc: Grpc) -> None:
    """A client without the files learns the service and its methods."""
    stub = reflection_pb2_grpc.ServerReflectionStub(rpc.channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
    ]
    listed, file = [answer async for answer in stub.ServerReflectionInfo(iter(requests))]
    names = {service.name for service in listed.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names
    assert b"QueueProduce" in b"".join(file.file_descriptor_response.file_descriptor_proto)


async def test_health(api: Api, rpc: Grpc, monkeypatch: pytest.MonkeyPatch) -> None:
    """SERVING as long as a backend is well, for the server and for the service; others are not known."""
    stub = health_pb2_grpc.HealthStub(rpc.channel)
    answer = health_pb2.HealthCheckResponse
    for service in ("", SERVICE):
        assert (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status == answer.SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(health_pb2.HealthCheckRequest(service="other"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND

    async def ill() -> Health:
        return Health(ok=False, details="the disk is full")

    monkeypatch.setattr(api.router._host.backends["memory-0"], "health", ill)
    assert (await stub.Check(health_pb2.HealthCheckRequest())).status == answer.NOT_SERVING


async def test_health_is_watched(api: Api, rpc: Grpc) -> None:
    """Who watches hears of the stop, and then the stream ends."""
    watch = health_pb2_grpc.HealthStub(rpc.channel).Watch(health_pb2.HealthCheckRequest())
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    await api.server.stop()
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert await watch.read() is grpc.aio.EOF


async def test_a_taken_port_is_named(api: Api) -> None:
    """A port that another has is an error at the start that names the option, not half of the calls."""
    assert api.server.grpc_address is not None
    with pytest.raises(errors.RequestFailed, match=r"grpc_listen cannot be used; 127\.0\.0\.1:\d+ is taken"):
        await GrpcDoor(api.server._hall, api.server._full_door.report).start(api.server.grpc_address)
