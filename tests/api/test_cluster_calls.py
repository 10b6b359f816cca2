"""What an instance that is alone tells of its cluster. Several are in tests/cluster/test_sites.py."""

from __future__ import annotations

from typing import Any

from tests.api.conftest import EXTENDED, Api


async def test_the_only_instance_leads_and_owns_everything(api: Api) -> None:
    """`cluster.info` names the instance, who leads, and where each logical queue is."""
    await api.ok("queues.create", queue_name="many", requested_partitions=3)
    told = await api.ok("cluster.info")
    [instance] = told["instances"]
    assert (instance["leader"], told["leader"]) == (True, instance["id"])
    assert (instance["host"], instance["version"], instance["backends"]) == ("here", "1", ["memory-0"])
    assert instance["started_at"] == "1970-01-01T00:00:00.001000Z"
    owned = [(each["queue_name"], each["instance"], each["partitions"]) for each in told["logical_queues"]]
    assert owned == [("mail", instance["id"], [0]), ("many", instance["id"], [0, 1, 2])]


async def test_cluster_info_comes_in_pages(api: Api) -> None:
    """A limit bounds the logical queues, a pivot goes on from one of them, and a wrong one is refused."""
    await api.ok("queues.create", queue_name="many", requested_partitions=4, logical_queues="3")

    async def page(**fields: Any) -> list[tuple[str, int]]:
        told = await api.ok("cluster.info", **fields)
        assert len(told["instances"]) == 1
        return [(each["queue_name"], each.get("number", 0)) for each in told.get("logical_queues", [])]

    everything = [("mail", 0), ("many", 0), ("many", 1), ("many", 2)]
    assert await page() == everything
    assert await page(limit=2) == everything[:2]
    assert await page(pivot="many") == everything[1:]
    assert await page(pivot="many~1", limit=1) == everything[2:3]
    assert await page(pivot="many~9") == []
    assert await page(pivot="mb") == []
    for wrong in ({"pivot": "many~x"}, {"limit": -1}, {"limit": 1001}):
        refused = await api.call("cluster.info", **wrong)
        assert (refused.status, refused.json["message"].partition(";")[0]) == (400, f"{next(iter(wrong))} is invalid")


async def test_a_route_names_the_owner_of_each_partition(api: Api) -> None:
    """`cluster.route` has every partition with its owner and epoch; of a queue that is not there it says so."""
    await api.ok("queues.create", queue_name="many", requested_partitions=2)
    told = await api.ok("cluster.route", queue_name="many")
    assert [each.get("partition", 0) for each in told["partitions"]] == [0, 1]
    assert len({each["epoch"] for each in told["partitions"]}) == 1
    assert told["partitions"][0]["epoch"] > 0
    assert len({each["instance"] for each in told["partitions"]}) == 1
    info = await api.ok("queues.info", EXTENDED, queue_name="many")
    assert [each["instance"] for each in info["partitions"]] == [each["instance"] for each in told["partitions"]]
    assert "partial" not in info
    assert (await api.call("cluster.route", queue_name="none")).status == 400
    assert (await api.call("cluster.route", queue_name="a b")).json["message"].startswith("queue_name is invalid")
