"""Clients of several instances: who is told what, where a call is answered, and who is sent elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.sites import Sites, sites

EXTENDED = {"Querator-Extended": "1"}
REDIRECT = {"Querator-Route": "redirect"}


@pytest.fixture(params=["fast", "full"])
def fast_door(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "fast")


@pytest.fixture
async def cluster(tmp_path: Path, fast_door: bool) -> AsyncIterator[Sites]:
    """Three instances; "mail" has a logical queue on each, "one" on a single instance."""
    async with sites(tmp_path, 3, fast_door=fast_door) as cluster:
        await cluster.create("mail", 3, 3)
        await cluster.create("one", 1, 1)
        yield cluster


async def test_every_instance_tells_the_same(cluster: Sites) -> None:
    """`cluster.info` and `cluster.route` of each instance name all of them, one leader, and the owners' addresses."""
    told = [await cluster.ok(site, "cluster.info") for site in cluster.all]
    assert [each["id"] for each in told[0]["instances"]] == ["a", "b", "c"]
    assert [each["addresses"] for each in told[0]["instances"]] == [[site.address] for site in cluster.all]
    assert [each["id"] for each in told[0]["instances"] if each.get("leader")] == [told[0]["leader"]]
    assert {each["instance"] for each in told[0]["logical_queues"] if each["queue_name"] == "mail"} == {"a", "b", "c"}
    assert told[1] == told[2] == told[0]
    routes = [await cluster.ok(site, "cluster.route", queue_name="mail") for site in cluster.all]
    assert routes[1] == routes[2] == routes[0]
    assert routes[0]["addresses"] == [site.address for site in cluster.all]
    for each in routes[0]["partitions"]:
        assert each["address"] == cluster.owner("mail", each.get("partition", 0)).address


async def test_totals_without_an_owner_say_so(cluster: Sites) -> None:
    """When an owner does not answer, the others' totals come all the same, marked as partial, with who is missing."""
    lost = cluster.owner("mail", 2)
    asked = cluster.owner("mail", 0)
    whole = await cluster.ok(asked, "queue.stats", EXTENDED, queue_name="mail")
    assert "partial" not in whole
    assert len(whole["logicalQueues"]) == 3
    cluster.cut_off(lost)
    async with asyncio.timeout(30):
        stats = await cluster.ok(asked, "queue.stats", EXTENDED, queue_name="mail")
        while stats["missing"] != [lost.name]:
            stats = await cluster.ok(asked, "queue.stats", EXTENDED, queue_name="mail")
    assert (stats["partial"], len(stats["logicalQueues"])) == (True, 2)
    info = await cluster.ok(asked, "queues.info", EXTENDED, queue_name="mail")
    assert (info["partial"], info["missing"]) == (True, [lost.name])
    states = [each.get("state") for each in info["partitions"]]
    assert sorted(states, key=str) == [None, "available", "available"]
    assert {each["instance"] for each in info["partitions"]} == {"a", "b", "c"}
    assert info["partitions"][2]["address"] == lost.address
    plain = await cluster.ok(asked, "queue.stats", queue_name="mail")
    assert set(plain) == {"queue_name", "logicalQueues"}


async def test_a_proxied_answer_names_the_owner(cluster: Sites) -> None:
    """Extended answers that another instance gave say where that is; those of the owner itself and plain ones do not."""
    owner, stranger = cluster.owner("one", 0), cluster.stranger("one")

    async def hints(site: Any, headers: dict[str, str]) -> list[str | None]:
        status, produced, _ = await cluster.send(
            site, "v1/queue.produce", headers, queue_name="one", items=[{"utf8": "x"}]
        )
        assert status == 200
        status, reserved, batch = await cluster.send(
            site, "v1/queue.reserve", headers, queue_name="one", batch_size=1, client_id="c"
        )
        assert status == 200
        status, completed, _ = await cluster.send(
            site, "v1/queue.complete", headers, queue_name="one", ids=[batch["items"][0]["id"]]
        )
        assert status == 200
        return [answer.get("Querator-Owner") for answer in (produced, reserved, completed)]

    assert await hints(stranger, EXTENDED) == [owner.address] * 3
    assert await hints(owner, EXTENDED) == [None] * 3
    assert await hints(stranger, {}) == [None] * 3


@pytest.mark.parametrize("call", ["produce", "reserve", "lease", "complete", "retry", "renew"])
@pytest.mark.parametrize("prefix", ["v1/", ""])
async def test_who_asks_for_it_is_sent_to_the_owner(cluster: Sites, call: str, prefix: str) -> None:
    """A hot call with `Querator-Route: redirect` gets 307 with the owner's address and an envelope, and nothing is done."""
    owner, stranger = cluster.owner("one", 0), cluster.stranger("one")
    fields: dict[str, Any] = {"items": [{"utf8": "x"}]} if call == "produce" else {}
    status, headers, body = await cluster.send(stranger, f"{prefix}queue.{call}", REDIRECT, queue_name="one", **fields)
    assert (status, headers["Location"]) == (307, f"http://{owner.address}/{prefix}queue.{call}")
    assert (body["code"], body["code_text"]) == (307, "Temporary Redirect")
    stats = await cluster.ok(owner, "queue.stats", queue_name="one")
    assert "total" not in stats["logicalQueues"][0]["partitions"][0]


async def test_what_is_here_is_answered_here(cluster: Sites) -> None:
    """The owner redirects nobody; whoever owns a part of a queue takes its produces and reserves; other calls too."""
    for site in cluster.all:
        status, _, _ = await cluster.send(site, "v1/queue.produce", REDIRECT, queue_name="mail", items=[{"utf8": "x"}])
        assert status == 200
        status, _, batch = await cluster.send(
            site, "v1/queue.reserve", REDIRECT, queue_name="mail", batch_size=1, client_id="c"
        )
        assert status == 200
        owner = cluster.owner("mail", batch.get("partition", 0))
        ids = [batch["items"][0]["id"]]
        status, _, _ = await cluster.send(
            owner, "v1/queue.complete", REDIRECT, queue_name="mail", partition=batch.get("partition", 0), ids=ids
        )
        assert status == 200
        assert (await cluster.send(site, "v1/queue.stats", REDIRECT, queue_name="one"))[0] == 200


async def test_wrong_calls_are_refused_where_they_are_made(cluster: Sites) -> None:
    """A queue or partition that is not there, or a route that nobody knows, is an error and no redirect."""
    site = cluster.stranger("one")
    for fields in ({"queue_name": "none"}, {"queue_name": "one", "partition": 7}):
        status, _, body = await cluster.send(site, "v1/queue.complete", REDIRECT, ids=["x"], **fields)
        assert (status, body["code"]) == (400, 400)
    status, _, body = await cluster.send(
        site, "v1/queue.complete", {"Querator-Route": "x"}, queue_name="one", ids=["x"]
    )
    assert (status, body["message"].partition(";")[0]) == (400, "Querator-Route is invalid")


async def test_an_instance_may_redirect_by_itself(tmp_path: Path, fast_door: bool) -> None:
    """One that is configured to redirect does so to everybody who does not ask to be passed on."""
    async with sites(tmp_path, 2, fast_door=fast_door, redirect=True) as cluster:
        await cluster.create("one", 1, 1)
        owner, stranger = cluster.owner("one", 0), cluster.stranger("one")
        produce = {"queue_name": "one", "items": [{"utf8": "x"}]}
        for path in ("v1/queue.produce", "queue.produce"):
            status, headers, _ = await cluster.send(stranger, path, **produce)
            assert (status, headers["Location"]) == (307, f"http://{owner.address}/{path}")
        assert (await cluster.send(owner, "v1/queue.produce", **produce))[0] == 200
        assert (await cluster.send(stranger, "v1/queue.produce", {"Querator-Route": "proxy"}, **produce))[0] == 200


async def test_who_stops_tells_those_who_come(cluster: Sites) -> None:
    """Clients that connect while an instance closes its doors are told to go elsewhere, and lose no request."""
    site = cluster[0]
    told = ""
    stopping = asyncio.create_task(cluster.stop(site))
    async with asyncio.timeout(30):
        while told != "instance is stopping" and not stopping.done():
            status, _, body = await cluster.send(
                site, "v1/queue.produce", {"Connection": "close"}, queue_name="mail", items=[{"utf8": "x"}]
            )
            assert status in {200, 454}, body
            told = body.get("message", "").partition(";")[0]
    await stopping
    assert told == "instance is stopping"
