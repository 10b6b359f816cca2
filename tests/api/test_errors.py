"""Every refusal: its code, its envelope, and the field that it names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from api.forms import choose_form
from querator import wire
from querator.errors import ContentError
from tests.api.conftest import PROTOBUF, Answered, Api

HOT = ["queue.produce", "queue.reserve", "queue.lease", "queue.complete", "queue.retry", "queue.renew"]


def check(answered: Answered, code: int, constant: str, details: str = "") -> None:
    envelope = answered.json
    assert (answered.status, envelope["code"]) == (code, code), answered.body
    assert set(envelope) <= {"code", "code_text", "message", "details"}
    assert envelope["message"].partition("; ")[0] == constant
    assert details in envelope["message"]
    assert answered.headers["X-Content-Type-Options"] == "nosniff"
    assert answered.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("name", "fields", "field"),
    [
        ("queue.produce", {}, "items"),
        ("queue.produce", {"items": [{}] * 1001}, "items"),
        ("queue.produce", {"items": [{}], "request_timeout": "9ms"}, "request_timeout"),
        ("queue.produce", {"items": [{}], "request_timeout": "15m1s"}, "request_timeout"),
        ("queue.produce", {"items": [{}], "request_timeout": "0"}, "request_timeout"),
        ("queue.produce", {"items": [{}], "request_timeout": "never"}, "request_timeout"),
        ("queue.produce", {"items": [{}, {"expire_timeout": "x"}]}, "items[1].expire_timeout"),
        ("queue.reserve", {"client_id": "c"}, "batch_size"),
        ("queue.reserve", {"client_id": "c", "batch_size": 1001}, "batch_size"),
        ("queue.reserve", {"client_id": "c", "batch_size": -1}, "batch_size"),
        ("queue.reserve", {"batch_size": 1}, "client_id"),
        ("queue.reserve", {"batch_size": 1, "client_id": "c" * 600}, "client_id"),
        ("queue.reserve", {"batch_size": 1, "client_id": "c", "request_timeout": "16m"}, "request_timeout"),
        ("queue.reserve", {"batch_size": 1, "client_id": "c", "lease_timeout": "1ms"}, "lease_timeout"),
        ("queue.complete", {}, "ids"),
        ("queue.complete", {"ids": ["x"] * 1001}, "ids"),
        ("queue.retry", {}, "items"),
        ("queue.renew", {}, "ids"),
        ("queue.renew", {"ids": ["x"], "lease_timeout": "?"}, "lease_timeout"),
        ("storage/items.list", {"limit": -1}, "limit"),
        ("storage/items.list", {"limit": 1001}, "limit"),
        ("storage/items.list", {"partition": 7}, "partition"),
        ("storage/scheduled.list", {"limit": 1001}, "limit"),
        ("storage/items.import", {}, "items"),
        ("storage/items.delete", {}, "ids"),
        ("queues.list", {"limit": -1}, "limit"),
    ],
)
async def test_wrong_values_are_named(api: Api, name: str, fields: dict[str, Any], field: str) -> None:
    """400, with the name of the field in the constant part of the message."""
    asked = fields if name == "queues.list" else {"queue_name": "mail", **fields}
    check(await api.call(name, **asked), 400, f"{field} is invalid")


@pytest.mark.parametrize(
    "name", sorted(set(wire.SHAPES) - {"queues.list", "queues.create", "storage.list", "cluster.info", "config.reload"})
)
async def test_queue_that_does_not_exist(api: Api, name: str) -> None:
    """Every call that names a queue says 400 for one that is not there, and for a name that none can have."""
    by_name: dict[str, dict[str, Any]] = {
        "queue.produce": {"items": [{}]},
        "queue.reserve": {"batch_size": 1, "client_id": "c"},
        "queue.lease": {"batch_size": 1, "client_id": "c"},
        "queue.complete": {"ids": ["x"]},
        "queue.retry": {"items": [{"id": "x"}]},
        "queue.renew": {"ids": ["x"]},
        "queue.clear": {"queue": True},
        "storage/items.import": {"items": [{}]},
        "storage/items.delete": {"ids": ["x"]},
    }
    fields = by_name.get(name, {})
    check(await api.call(name, queue_name="nowhere", **fields), 400, "queue does not exist", "'nowhere'")
    check(await api.call(name, queue_name="no where", **fields), 400, "queue_name is invalid")
    check(await api.call(name, **fields), 400, "queue_name is invalid", "empty")


@pytest.mark.parametrize("name", sorted(wire.SHAPES))
async def test_unknown_fields_are_refused(api: Api, name: str) -> None:
    """455 that names the field, so that a typo is never silently lost."""
    check(await api.call(name, queu_name="mail"), 455, "body is invalid", "`queu_name`")


async def test_long_names_are_not_given_back(api: Api) -> None:
    """An error is short, whatever was sent."""
    answered = await api.call("queue.produce", **{"y" * 100_000: 1})
    check(answered, 455, "body is invalid", "`yyy")
    assert len(answered.body) < 1000


@pytest.mark.parametrize("field", ["priority", "key", "unique_id", "metadata"])
async def test_fields_of_later_versions_are_unknown(api: Api, field: str) -> None:
    """What this version cannot do is refused, not ignored."""
    check(
        await api.call("queue.produce", queue_name="mail", items=[{field: "x"}]), 455, "body is invalid", f"`{field}`"
    )


@pytest.mark.parametrize("name", ["queue.produce", "queues.info"])
@pytest.mark.parametrize(
    ("body", "details"),
    [
        (b"[]", "object"),
        (b'"mail"', "object"),
        (b"null", "object"),
        (b'{"queue_name":1}', "$.queue_name"),
        (b'{"queue_name":null}', "$.queue_name"),
        (b'{"queue_name":"mail"', ""),
        (b"queue_name=mail", ""),
        (b'{"queue_name":"\xff"}', "utf-8"),
        (b'{"queue_name":"mail"}{}', ""),
        (b'{"queue_name":' + b"[" * 100_000, ""),
        (b'{"x":' + b'{"x":' * 20_000, ""),
        (b"\x00", ""),
    ],
)
async def test_bodies_that_cannot_be_read(api: Api, name: str, body: bytes, details: str) -> None:
    """455 for what is not JSON, not UTF-8, cut off, of another type or nested without end."""
    check(await api.send(f"/v1/{name}", body), 455, "body is invalid", details)


@pytest.mark.parametrize(
    ("item", "details"),
    [
        ({"bytes": "%%%"}, "$.items[0].bytes"),
        ({"enqueue_at": "tomorrow"}, "$.items[0].enqueue_at"),
        ({"enqueue_at": "2030-01-01T00:00:00"}, "$.items[0].enqueue_at"),
        ({"kind": 5}, "$.items[0].kind"),
    ],
)
async def test_items_that_cannot_be_read(api: Api, item: dict[str, Any], details: str) -> None:
    """The path to the wrong value is in the message, and nothing was produced."""
    check(await api.call("queue.produce", queue_name="mail", items=[{}, item][::-1]), 455, "body is invalid", details)
    assert await api.ok("storage/items.list", queue_name="mail") == {}


async def test_original_names_are_accepted(api: Api) -> None:
    """camelCase as the public client's schema has it means the same; both at once are refused."""
    await api.ok("queue.produce", queueName="mail", items=[{"utf8": "x", "expireTimeout": "1h"}])
    answer = await api.ok("queue.reserve", queueName="mail", batchSize=1, clientId="c", request_timeout="5s")
    assert len(answer["items"]) == 1
    check(await api.call("queue.complete", queueName="mail", queue_name="mail"), 455, "body is invalid", "'queueName'")
    check(await api.call("queue.complete", queueName="mail", other=1), 455, "body is invalid", "`other`")
    check(await api.call("queue.complete", queueName=5), 455, "body is invalid", "$.queue_name")


async def test_content_types(api: Api) -> None:
    """JSON unless something else is said; what is neither JSON nor protobuf is 455."""
    body = msgspec.json.encode({"queue_name": "mail", "items": [{"utf8": "x"}]})
    for content_type in ("*/*", "application/*", "application/json", "Application/JSON; charset=utf-8"):
        assert (await api.send("/v1/queue.produce", body, {"Content-Type": content_type})).status == 200
    assert (await api.send("/v1/queue.produce", body)).status == 200
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "application/xml"):
        answered = await api.send("/v1/queue.produce", body, {"Content-Type": content_type})
        check(answered, 455, "Content-Type is not supported", content_type)


async def test_accept(api: Api) -> None:
    """The first type that we can write; none at all is 455."""
    body = msgspec.json.encode({"queue_name": "mail", "items": [{"utf8": "x"}]})
    for accept, content_type in [
        ("*/*", "application/json"),
        ("text/html, application/protobuf;q=0.9, */*;q=0.1", PROTOBUF),
        ("application/protobuf;q=0, application/*", "application/json"),
    ]:
        answered = await api.send("/v1/queue.produce", body, {"Accept": accept})
        assert (answered.status, answered.headers["Content-Type"]) == (200, content_type)
    check(await api.send("/v1/queue.produce", body, {"Accept": "text/html"}), 455, "Accept is not supported")


@pytest.mark.parametrize("name", ["queue.complete", "queues.info"])
async def test_errors_are_written_in_the_accepted_form(api: Api, name: str) -> None:
    """An error to a caller that accepts protobuf is protobuf."""
    from querator.v1 import envelope_pb2

    answered = await api.call(
        name, {"Accept": PROTOBUF}, queue_name="nowhere", **{"ids": ["x"]} if "complete" in name else {}
    )
    envelope = envelope_pb2.Envelope()
    envelope.ParseFromString(answered.body)
    assert (answered.status, envelope.code, envelope.codeText) == (400, 400, "Bad Request")
    assert envelope.message.startswith("queue does not exist; ")


@pytest.mark.parametrize("name", ["queue.produce", "queues.info"])
async def test_protobuf_that_cannot_be_read(api: Api, name: str) -> None:
    """455 for what is no message of the call; fields that we do not know are skipped, as protobuf does."""
    check(await api.send(f"/v1/{name}", b"\xff\xff\xff", {"Content-Type": PROTOBUF}), 455, "body is invalid")
    unknown = b"\x0a\x04mail" + b"\xf8\x3f\x01"
    answered = await api.send(f"/v1/{name}", unknown, {"Content-Type": PROTOBUF})
    assert "body is invalid" not in answered.body.decode()


async def test_protobuf_instants_out_of_range(api: Api) -> None:
    """A time that no calendar has is 455, and names the field."""
    from querator.v1 import queue_pb2

    request = queue_pb2.ProduceRequest(queueName="mail", items=[{"bytes": b"x"}])
    request.items[0].enqueueAt.seconds = 2**62
    answered = await api.send("/v1/queue.produce", request.SerializeToString(), {"Content-Type": PROTOBUF})
    check(answered, 455, "body is invalid", "enqueue_at")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/queue.redrive",
        "/v1/queue.rebalance",
        "/v1/queue.rebalance.status",
        "/v1/queue.audit",
        "/v1/storage.drain",
        "/v1/nothing",
        "/v2/queue.produce",
        "/v1/queue.produce/",
        "/v1/v1/queue.produce",
        "/nowhere",
        "/favicon.ico",
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_no_such_method(api: Api, path: str, method: str) -> None:
    """501 with the path, for what does not exist and for what does not exist yet."""
    check(await api.send(path, b"{}" if method == "POST" else None, method=method), 501, "no such method", f"; {path}")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_calls_are_posted(api: Api, method: str) -> None:
    """Another method on the path of a call is 400."""
    check(await api.send("/v1/queue.produce", None, method=method), 400, "method is not allowed", method)


@pytest.mark.parametrize(
    ("name", "size"), [("queue.produce", 5_000_001), ("queue.reserve", 256_001), ("queues.list", 256_001)]
)
@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_that_are_too_large(api: Api, name: str, size: int, chunked: bool) -> None:
    """455, with a length in front or without; the connection's next request is served."""

    async def chunks() -> Any:
        for _ in range(size // 50_000 + 1):
            yield b"x" * 50_000

    body = chunks() if chunked else b"x" * size
    check(await api.send(f"/v1/{name}", body), 455, "body is too large", name)
    assert await api.ok("storage/items.list", queue_name="mail") == {}


async def test_unforeseen_errors_tell_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 `Internal Error`, and the details are only in the log."""

    def broken(*_arguments: Any) -> Any:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(api.router, "produce", broken)
    monkeypatch.setattr(api.router, "queue_stats", broken)
    asked: list[tuple[str, dict[str, Any]]] = [("queue.produce", {"items": [{}]}), ("queue.stats", {})]
    for name, fields in asked:
        answered = await api.call(name, queue_name="mail", **fields)
        check(answered, 500, "Internal Error")
        assert answered.json == {"code": 500, "code_text": "Internal Error", "message": "Internal Error"}


def test_forms_are_chosen_once() -> None:
    """The choice is a function of three headers; nonsense is refused by name."""
    assert choose_form("", "", "1").extended
    assert not choose_form("", "", "yes").extended
    with pytest.raises(ContentError, match="Content-Type is not supported"):
        choose_form("multipart/form-data; boundary=x", "", "")
