"""What producers and consumers call, through both doors, in JSON and in protobuf."""

from __future__ import annotations

import asyncio
import base64
import re
from typing import Any

import pytest

from querator.clock import SystemClock
from querator.durations import format_instant, parse_instant
from tests.api.conftest import EXTENDED, PROTOBUF, Api


def encoded(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


def later(seconds: float) -> str:
    return format_instant(SystemClock().now_ms() + round(seconds * 1000))


async def reserve(api: Api, batch_size: int = 10, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    fields = {"queue_name": "mail", "client_id": "c", "request_timeout": "5s", **fields}
    return await api.ok("queue.reserve", headers, batch_size=batch_size, **fields)


async def statistics(api: Api, headers: dict[str, str] | None = None) -> Any:
    return (await api.ok("queue.stats", headers, queue_name="mail"))["logicalQueues"][0]


async def test_item_goes_through_its_whole_life(api: Api) -> None:
    """What was produced is reserved with all of its attributes, completed, and gone."""
    item = {"encoding": "text", "kind": "letter", "reference": "r-1", "bytes": encoded(b"\x00\xff")}
    assert await api.ok("queue.produce", queue_name="mail", items=[item]) == {"code": 200}
    answer = await reserve(api)
    assert set(answer) == {"queue_name", "items"}  # partition 0 is a zero value
    [found] = answer["items"]
    assert set(found) == {"encoding", "kind", "reference", "id", "attempts", "lease_deadline", "bytes"}
    assert {name: found[name] for name in item} == item
    assert found["attempts"] == 1
    assert found["lease_deadline"].endswith("Z")
    assert await api.ok("queue.complete", queue_name="mail", ids=[found["id"]]) == {"code": 200}
    assert "total" not in (await statistics(api))["partitions"][0]


async def test_bytes_win_over_utf8(api: Api) -> None:
    """`utf8` is the payload unless there are `bytes`."""
    items = [{"utf8": "grüße"}, {"utf8": "no", "bytes": encoded(b"yes")}, {}]
    await api.ok("queue.produce", queue_name="mail", items=items)
    found = (await reserve(api))["items"]
    assert [each.get("bytes", "") for each in found] == [encoded("grüße".encode()), encoded(b"yes"), ""]


async def test_extended_produce_tells_partition_and_ids_in_order(api: Api) -> None:
    """The ids of ready and scheduled items come in the order of the request, and are those of the hand-out."""
    items = [{"utf8": "a"}, {"utf8": "b", "enqueue_at": later(900)}, {"utf8": "c", "enqueue_at": later(-900)}]
    answer = await api.ok("queue.produce", EXTENDED, queue_name="mail", items=items)
    assert answer["code"] == 200
    [scheduled] = (await api.ok("storage/scheduled.list", queue_name="mail"))["items"]
    reserved = (await reserve(api))["items"]
    assert answer["ids"] == [reserved[0]["id"], scheduled["id"], reserved[1]["id"]]


async def test_extended_reserve_tells_when_the_item_was_created(api: Api) -> None:
    """`created_at` is in the answer for those who ask for it."""
    before_ms = api.router.clock.now_ms()
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "a"}])
    [item] = (await reserve(api, headers=EXTENDED))["items"]
    assert before_ms <= parse_instant(item["created_at"]) <= api.router.clock.now_ms()


async def test_lease_is_another_name_of_reserve(api: Api) -> None:
    """Every path is served with and without its version, and queue.lease is queue.reserve."""
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": str(number)} for number in range(4)])
    for path in ("/v1/queue.reserve", "/queue.reserve", "/v1/queue.lease", "/queue.lease"):
        answered = await api.send(path, b'{"queue_name":"mail","batch_size":1,"client_id":"c"}')
        assert answered.status == 200
        assert len(answered.json["items"]) == 1


async def test_reserve_waits_for_an_item(api: Api) -> None:
    """A long poll is answered as soon as there is an item."""
    waiting = asyncio.ensure_future(reserve(api, request_timeout="1m"))
    while (await statistics(api)).get("lease_waiting") != 1:
        await asyncio.sleep(0)
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "x"}])
    assert len((await waiting)["items"]) == 1


async def test_reserve_times_out_with_454(api: Api) -> None:
    """No item within the request's timeout: try again."""
    answered = await api.call("queue.reserve", queue_name="mail", batch_size=1, client_id="c", request_timeout="10ms")
    assert answered.status == 454
    assert answered.json["code"] == 454
    assert answered.json["code_text"] == "Retry Request"
    assert answered.json["message"].startswith("request timed out; ")


async def test_lease_timeout_of_the_request_wins(api: Api) -> None:
    """The lease lasts as long as the request asked for."""
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "x"}])
    [item] = (await reserve(api, lease_timeout="2h"))["items"]
    left_ms = parse_instant(item["lease_deadline"]) - api.router.clock.now_ms()
    assert 7_000_000 < left_ms <= 7_200_000


async def test_renew_gives_new_deadlines(api: Api) -> None:
    """Renewing moves the deadline of every id; an id that is not leased is refused by name."""
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "x"}, {"utf8": "y"}])
    items = (await reserve(api))["items"]
    ids = [item["id"] for item in items]
    answer = await api.ok("queue.renew", queue_name="mail", ids=ids, lease_timeout="3h")
    assert [each["id"] for each in answer["items"]] == ids
    assert all(
        parse_instant(new["lease_deadline"]) > parse_instant(old["lease_deadline"])
        for new, old in zip(answer["items"], items, strict=True)
    )
    await api.ok("queue.complete", queue_name="mail", ids=ids[:1])
    refused = await api.call("queue.renew", queue_name="mail", ids=ids)
    assert refused.status == 400
    assert ids[0] in refused.json["message"]


async def test_complete_is_all_or_nothing(api: Api) -> None:
    """One id that is not leased: 400 naming it, and the others stay leased."""
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "x"}])
    [item] = (await reserve(api))["items"]
    wrong = item["id"][:-4] + "0009"
    refused = await api.call("queue.complete", queue_name="mail", ids=[item["id"], wrong])
    assert refused.status == 400
    assert wrong in refused.json["message"]
    assert (await statistics(api))["partitions"][0]["total_leased"] == 1


async def test_retry_now_later_and_dead(api: Api) -> None:
    """A retry without time is ready at once, one with a time is scheduled, a dead one goes to the dead queue."""
    await api.ok("queues.create", queue_name="dead")
    await api.ok("queues.update", queue_name="mail", dead_queue="dead")
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": name} for name in "abc"])
    first, second, third = [item["id"] for item in (await reserve(api))["items"]]
    retried = [{"id": first}, {"id": second, "retry_at": later(900)}, {"id": third, "dead": True}]
    assert await api.ok("queue.retry", queue_name="mail", items=retried) == {"code": 200}
    [again] = (await reserve(api))["items"]
    assert (again["bytes"], again["attempts"]) == (encoded(b"a"), 2)
    [scheduled] = (await api.ok("storage/scheduled.list", queue_name="mail"))["items"]
    assert scheduled["payload"] == encoded(b"b")
    [dead] = (await reserve(api, queue_name="dead", request_timeout="10s"))["items"]
    assert dead["bytes"] == encoded(b"c")


async def test_own_expire_timeout_of_an_item(api: Api) -> None:
    """An item may say when it expires, in place of its queue."""
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "a", "expire_timeout": "1h"}, {"utf8": "b"}])
    first, second = (await api.ok("storage/items.list", queue_name="mail"))["items"]
    left_ms = parse_instant(first["expire_deadline"]) - api.router.clock.now_ms()
    assert 3_500_000 < left_ms <= 3_600_000
    assert "expire_deadline" not in second


async def test_stats_hold_the_listed_fields(api: Api) -> None:
    """Zero values are omitted, `logicalQueues` is spelled so, and more comes only when asked for."""
    items = [{"utf8": "a"}, {"utf8": "b"}, {"utf8": "c", "enqueue_at": later(900)}]
    await api.ok("queue.produce", queue_name="mail", items=items)
    await reserve(api, 1)
    partition = (await statistics(api))["partitions"][0]
    assert {name: partition[name] for name in ("total", "total_leased", "scheduled")} == {
        "total": 2,
        "total_leased": 1,
        "scheduled": 1,
    }
    listed = {"partition", "total", "total_leased", "failures", "average_age", "average_leased_age", "scheduled"}
    assert set(partition) <= listed
    extended = (await statistics(api, EXTENDED))["partitions"][0]
    assert (extended["ready"], extended["backend"], extended["state"]) == (1, "memory-0", "available")


async def test_stats_tell_what_came_and_what_was_completed(api: Api) -> None:
    """Extended, a partition counts the items that arrived and those that were completed, and tells the oldest's age."""
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": text} for text in "abc"])
    [item] = (await reserve(api, 1))["items"]
    await api.ok("queue.complete", queue_name="mail", ids=[item["id"]])
    partition = (await statistics(api, EXTENDED))["partitions"][0]
    assert (partition["arrived"], partition["completed"]) == (3, 1)
    assert "oldest_age" in partition


async def test_clear_removes_what_is_named(api: Api) -> None:
    """Clearing needs to be told what; leased items stay unless it is destructive."""
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "a"}, {"utf8": "b"}])
    await reserve(api, 1)
    refused = await api.call("queue.clear", queue_name="mail")
    assert (refused.status, refused.json["message"].partition(";")[0]) == (400, "queue is invalid")
    await api.ok("queue.clear", queue_name="mail", queue=True)
    assert (await statistics(api))["partitions"][0]["total"] == 1
    await api.ok("queue.clear", queue_name="mail", queue=True, destructive=True)
    assert "total" not in (await statistics(api))["partitions"][0]


async def test_reload_keeps_the_items(api: Api) -> None:
    """A reloaded queue has what it had."""
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "a"}])
    assert await api.ok("queue.reload", queue_name="mail") == {"code": 200}
    assert len((await reserve(api))["items"]) == 1


async def test_pause_and_resume_each_way(api: Api) -> None:
    """A queue can be paused for producers, for consumers, or (naming neither) for both."""
    await api.ok("queue.pause", queue_name="mail", produce=True)
    info = await api.ok("queues.info", EXTENDED, queue_name="mail")
    assert (info.get("produce_paused"), info.get("reserve_paused")) == (True, None)
    refused = await api.call("queue.produce", queue_name="mail", items=[{"utf8": "a"}], request_timeout="50ms")
    assert refused.status in {409, 454}
    await api.ok("queue.pause", queue_name="mail")
    info = await api.ok("queues.info", EXTENDED, queue_name="mail")
    assert (info.get("produce_paused"), info.get("reserve_paused")) == (True, True)
    await api.ok("queue.resume", queue_name="mail")
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "a"}])
    assert len((await reserve(api))["items"]) == 1


async def test_protobuf_all_the_way(api: Api) -> None:
    """The same cycle in protobuf, both ways."""
    await api.protobuf("queue.produce", queueName="mail", items=[{"bytes": b"\x00\xff", "kind": "k"}])
    reserved: Any = await api.protobuf(
        "queue.reserve", queueName="mail", batchSize=5, clientId="c", requestTimeout="5s"
    )
    [item] = reserved.items
    assert (item.bytes, item.kind, item.attempts, reserved.queueName) == (b"\x00\xff", "k", 1, "mail")
    assert item.leaseDeadline.ToMilliseconds() > api.router.clock.now_ms()
    renewed: Any = await api.protobuf("queue.renew", queueName="mail", ids=[item.id], leaseTimeout="2h")
    assert renewed.items[0].leaseDeadline.ToMilliseconds() > item.leaseDeadline.ToMilliseconds()
    done: Any = await api.protobuf("queue.complete", queueName="mail", ids=[item.id])
    assert done.code == 200
    stats: Any = await api.protobuf("queue.stats", EXTENDED, queueName="mail")
    assert stats.logicalQueues[0].partitions[0].backend == "memory-0"


async def test_public_client_asks_in_protobuf_and_reads_json(api: Api) -> None:
    """A protobuf request without Accept is answered in JSON with exactly the listed fields."""
    from querator.v1 import queue_pb2

    produce = queue_pb2.ProduceRequest(queueName="mail", items=[{"bytes": b"x"}]).SerializeToString()
    # aiohttp's client would send Accept by itself
    answered = await raw_protobuf(api, "/v1/queue.produce", produce)
    assert answered == b'{"code":200}'
    ask = queue_pb2.ReserveRequest(queueName="mail", batchSize=1, clientId="c").SerializeToString()
    answered = await raw_protobuf(api, "/v1/queue.lease", ask)
    assert re.fullmatch(
        rb'\{"queue_name":"mail","items":\[\{"id":"[0-9a-f]{23}","lease_deadline":"[^"]+Z","attempts":1,"bytes":"eA=="\}\]\}',
        answered,
    )


async def raw_protobuf(api: Api, path: str, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {PROTOBUF}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", answer.lower())[1])  # type: ignore[index]
    found = await reader.readexactly(length)
    writer.close()
    return found


@pytest.mark.parametrize("name", ["queue.complete", "queue.renew"])
async def test_ids_of_another_making_are_refused(api: Api, name: str) -> None:
    """What is no id of an item is refused as such."""
    refused = await api.call(name, queue_name="mail", ids=["../../etc/passwd"])
    assert refused.status == 400
    assert refused.json["message"].startswith("id is invalid; ")
