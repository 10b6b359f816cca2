"""Making, changing and looking at queues; looking into partitions and at backends."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.api.conftest import EXTENDED, Api

LISTED = {
    "queue_name",
    "created_at",
    "updated_at",
    "dead_queue",
    "reference",
    "lease_timeout",
    "expire_timeout",
    "max_attempts",
    "requested_partitions",
    "partitions",
    "namespace",
}


async def info(api: Api, **fields: Any) -> Any:
    return await api.ok("queues.info", EXTENDED, **{"queue_name": "mail", **fields})


async def test_queue_has_what_it_was_created_with(api: Api) -> None:
    """Every setting comes back; the answer holds only the listed fields unless more is asked for."""
    await api.ok("queues.create", queue_name="dead")
    settings = {
        "dead_queue": "dead",
        "reference": "r@example.com",
        "lease_timeout": "1m30s",
        "expire_timeout": "24h",
        "max_attempts": 5,
        "requested_partitions": 3,
        "namespace": "ns",
    }
    policy = {"base": "1s", "factor": 3.0, "max": "10m", "jitter": 0.5}
    assert await api.ok("queues.create", queue_name="q", retry_policy=policy, **settings) == {"code": 200}
    plain = await api.ok("queues.info", queue_name="q")
    assert set(plain) == LISTED
    assert {name: plain[name] for name in settings} == settings
    assert plain["partitions"] == [{}, {"partition": 1}, {"partition": 2}]
    extended = await info(api, queue_name="q")
    assert extended["retry_policy"] == policy
    assert {each["backend"] for each in extended["partitions"]} == {"memory-0"}
    assert {each["state"] for each in extended["partitions"]} == {"available"}


async def test_logical_queues_are_auto_or_a_number(api: Api) -> None:
    """A queue follows the load unless a number is given; an update changes it both ways, in either encoding."""
    assert (await info(api))["logical_queues"] == "auto"
    await api.ok("queues.create", queue_name="q", requested_partitions=4, logical_queues="2")
    assert (await info(api, queue_name="q"))["logical_queues"] == "2"
    await api.ok("queues.update", queue_name="q", reference="r")
    assert (await info(api, queue_name="q"))["logical_queues"] == "2"
    await api.protobuf("queues.update", queueName="q", logicalQueues="auto")
    assert (await info(api, queue_name="q"))["logical_queues"] == "auto"
    refused = await api.call("queues.update", queue_name="q", logical_queues="")
    assert (refused.status, refused.json["message"].partition(";")[0]) == (400, "logical_queues is invalid")


async def test_defaults_are_shown(api: Api) -> None:
    """A queue that was given a name only has the defaults."""
    found = await info(api)
    assert (found["lease_timeout"], found["expire_timeout"], found["requested_partitions"]) == ("1m", "0s", 1)
    assert "max_attempts" not in found


async def test_update_changes_what_it_names_and_nothing_else(api: Api) -> None:
    """Absent is not zero: other fields keep their value, and a given zero is taken."""
    policy = {"base": "1s", "factor": 3.0, "max": "10m", "jitter": 0.5}
    await api.ok(
        "queues.create", queue_name="q", max_attempts=5, reference="r", lease_timeout="2m", retry_policy=policy
    )
    await api.ok("queues.update", queue_name="q", reference="s", retry_policy={"max": "20m"})
    found = await info(api, queue_name="q")
    assert (found["max_attempts"], found["reference"], found["lease_timeout"]) == (5, "s", "2m")
    assert found["retry_policy"] == {**policy, "max": "20m"}
    await api.ok("queues.update", queue_name="q", max_attempts=0, reference="")
    found = await info(api, queue_name="q")
    assert ("max_attempts" in found, "reference" in found, found["lease_timeout"]) == (False, False, "2m")


async def test_update_in_protobuf_knows_absent_from_zero(api: Api) -> None:
    """The same through protobuf, where presence is explicit."""
    await api.ok("queues.create", queue_name="q", max_attempts=5, reference="r")
    await api.protobuf("queues.update", queueName="q", reference="s")
    assert (await info(api, queue_name="q"))["max_attempts"] == 5
    await api.protobuf("queues.update", queueName="q", maxAttempts=0)
    found = await info(api, queue_name="q")
    assert ("max_attempts" in found, found["reference"]) == (False, "s")


async def test_create_twice_is_a_conflict(api: Api) -> None:
    """409, and the first one stays as it is."""
    refused = await api.call("queues.create", queue_name="mail", max_attempts=9)
    assert (refused.status, refused.json["code_text"]) == (409, "Conflict")
    assert refused.json["message"].startswith("queue already exists; ")
    assert "max_attempts" not in await info(api)


async def test_list_pages_by_an_inclusive_pivot(api: Api) -> None:
    """Queues come in the order of names, from the pivot on, as many as asked for."""
    for name in ("a", "b", "c"):
        await api.ok("queues.create", queue_name=name, namespace="n" if name == "b" else "")
    page = await api.ok("queues.list", pivot="b", limit=2)
    assert [each["queue_name"] for each in page["items"]] == ["b", "c"]
    assert set(page["items"][0]) <= LISTED
    everything = await api.send("/v1/queues.list", b"")
    assert [each["queue_name"] for each in everything.json["items"]] == ["a", "b", "c", "mail"]
    named = await api.ok("queues.list", namespace="n")
    assert [each["queue_name"] for each in named["items"]] == ["b"]
    in_protobuf: Any = await api.protobuf("queues.list", limit=1)
    assert [each.queueName for each in in_protobuf.items] == ["a"]


async def test_delete_refuses_a_queue_with_items_unless_forced(api: Api) -> None:
    """409 while there are items; with `force` they are gone, also if the queue is made again."""
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "x"}])
    assert (await api.call("queues.delete", queue_name="mail")).status == 409
    await api.ok("queues.delete", queue_name="mail", force=True)
    assert (await api.call("queues.info", queue_name="mail")).status == 400
    await api.ok("queues.create", queue_name="mail")
    assert await api.ok("storage/items.list", queue_name="mail") == {}


async def test_items_are_listed_imported_and_deleted(api: Api) -> None:
    """What a list shows can be imported elsewhere and deleted here."""
    await api.ok("queues.create", queue_name="copy", max_attempts=7)
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": name, "kind": "k"} for name in "abc"])
    await api.ok("queue.reserve", queue_name="mail", batch_size=1, client_id="c")
    items = (await api.ok("storage/items.list", queue_name="mail"))["items"]
    assert [each.get("is_leased", False) for each in items] == [True, False, False]
    assert items[0]["attempts"] == 1
    assert "lease_deadline" in items[0]
    page = (await api.ok("storage/items.list", queue_name="mail", pivot=items[1]["id"], limit=1))["items"]
    assert [each["id"] for each in page] == [items[1]["id"]]
    imported = (await api.ok("storage/items.import", queue_name="copy", items=items))["items"]
    assert [each["payload"] for each in imported] == [each["payload"] for each in items]
    assert {each["max_attempts"] for each in imported} == {7}
    assert imported[0]["attempts"] == 1
    await api.ok("storage/items.delete", queue_name="mail", ids=[items[1]["id"]])
    left = (await api.ok("storage/items.list", queue_name="mail"))["items"]
    assert base64.b64encode(b"b").decode() not in {each["payload"] for each in left}


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"attempts": -1}, "items[0].attempts"),
        ({"enqueue_at": "9000-01-01T00:00:00Z"}, "items[0].enqueue_at"),
    ],
)
async def test_import_refuses_what_is_no_ready_item(api: Api, item: dict[str, Any], field: str) -> None:
    """The wrong field is named, and nothing is imported."""
    refused = await api.call("storage/items.import", queue_name="mail", items=[item])
    assert (refused.status, refused.json["message"].partition(";")[0]) == (400, f"{field} is invalid")
    assert await api.ok("storage/items.list", queue_name="mail") == {}


async def test_backends_are_listed(api: Api) -> None:
    """`storage.list` tells driver, affinity, health and partitions."""
    answer = await api.ok("storage.list")
    assert answer["backends"] == [
        {"name": "memory-0", "driver": "memory", "affinity": 1.0, "healthy": True, "partitions": 1}
    ]


async def test_config_reload_without_config_says_so(api: Api) -> None:
    """An instance that has no config to reload answers 453."""
    refused = await api.call("config.reload")
    assert refused.status == 453
    assert refused.json["message"].startswith("config cannot be reloaded; ")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"queue_name": ""}, "queue_name"),
        ({"queue_name": "a b"}, "queue_name"),
        ({"queue_name": "a~b"}, "queue_name"),
        ({"queue_name": "a\u2028b"}, "queue_name"),
        ({"queue_name": "a\x00b"}, "queue_name"),
        ({"queue_name": "x" * 513}, "queue_name"),
        ({"queue_name": "ü" * 257}, "queue_name"),
        ({"queue_name": "q", "lease_timeout": "soon"}, "lease_timeout"),
        ({"queue_name": "q", "lease_timeout": "1ms"}, "lease_timeout"),
        ({"queue_name": "q", "expire_timeout": "-1s"}, "expire_timeout"),
        ({"queue_name": "q", "max_attempts": -1}, "max_attempts"),
        ({"queue_name": "q", "requested_partitions": -1}, "requested_partitions"),
        ({"queue_name": "q", "requested_partitions": 100_000}, "requested_partitions"),
        ({"queue_name": "q", "logical_queues": "some"}, "logical_queues"),
        ({"queue_name": "q", "logical_queues": "0"}, "logical_queues"),
        ({"queue_name": "q", "logical_queues": "-1"}, "logical_queues"),
        ({"queue_name": "q", "logical_queues": "1025"}, "logical_queues"),
        ({"queue_name": "q", "logical_queues": "9" * 5000}, "logical_queues"),
        ({"queue_name": "q", "dead_queue": "q"}, "dead_queue"),
        ({"queue_name": "q", "dead_queue": "none"}, "dead_queue"),
        ({"queue_name": "q", "retry_policy": {"base": "x"}}, "retry_policy.base"),
        ({"queue_name": "q", "retry_policy": {"factor": 0}}, "retry_policy.factor"),
        ({"queue_name": "q", "retry_policy": {"jitter": 2}}, "retry_policy.jitter"),
    ],
)
async def test_create_refuses_wrong_settings(api: Api, fields: dict[str, Any], field: str) -> None:
    """400 with the name of the wrong field, and there is no new queue."""
    refused = await api.call("queues.create", **fields)
    assert (refused.status, refused.json["message"].partition(";")[0]) == (400, f"{field} is invalid")
    assert len((await api.ok("queues.list"))["items"]) == 1


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "'; DROP TABLE items; --", "${jndi:x}", "%2e%2e%2f", "ключ", "🚚"]
)
async def test_hostile_names_are_names(api: Api, name: str) -> None:
    """Names never reach SQL or the file system: a queue may be called anything that is allowed, and works."""
    name = name.replace(" ", "_")
    await api.ok("queues.create", queue_name=name)
    await api.ok("queue.produce", queue_name=name, items=[{"utf8": "x"}])
    answer = await api.ok("queue.reserve", queue_name=name, batch_size=1, client_id=name)
    assert answer["queue_name"] == name
    await api.ok("queues.delete", queue_name=name, force=True)
    assert [each["queue_name"] for each in (await api.ok("queues.list"))["items"]] == ["mail"]
