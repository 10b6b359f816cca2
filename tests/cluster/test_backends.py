"""Several backends of which one is down: at the start, while queues are made and deleted, and while they are used."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from querator.errors import NoSuchQueue, RetryRequest, TimedOut
from querator.items import Item
from querator.waist import Health
from tests.cluster.conftest import Station
from tests.cluster.test_router import TIMEOUT_MS, create, produce, reserve, stored

PATIENCE_S = 60


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():
            await asyncio.sleep(0.01)


async def states(station: Station, name: str) -> dict[str, set[str]]:
    """The states of a queue's partitions by backend."""
    found: dict[str, set[str]] = {}
    for logical_queue in (await station.router.queue_stats(name)).logical_queues:
        for partition in logical_queue.partitions:
            found.setdefault(partition.backend, set()).add(partition.state)
    return found


async def take(station: Station, name: str, count: int) -> Counter[bytes]:
    """Reserve and complete until so many items were there."""
    taken: Counter[bytes] = Counter()
    while taken.total() < count:
        partition, ids, payloads = await reserve(station, name, 100)
        await station.router.complete(name, partition, ids, TIMEOUT_MS)
        taken.update(payloads)
    return taken


async def test_produces_go_elsewhere_while_a_backend_is_down(station: Station) -> None:
    """None fails, sight tells which backend it is, and what lies there is delivered when it is back by itself."""
    await create(station, "mail", requested_partitions=3)
    names = [b"%d" % number for number in range(60)]
    for name in names[:30]:
        await produce(station, "mail", name)
    station.backends["two"].break_()
    for name in names[30:]:
        await produce(station, "mail", name)
    assert await states(station, "mail") == {"one": {"available"}, "two": {"failing"}}
    health = await station.router.health()
    assert (health["one"].ok, health["two"].ok) == (True, False)
    assert {each.name: each.partitions for each in station.router.backends()} == {"one": 2, "two": 1}
    station.backends["two"].mend()
    assert await take(station, "mail", len(names)) == Counter(names)
    assert await states(station, "mail") == {"one": {"available"}, "two": {"available"}}


async def test_an_instance_starts_while_a_backend_is_down(station: Station) -> None:
    """It serves what it can; the rest comes back by itself, with every item."""
    await create(station, "mail", requested_partitions=3)
    await create(station, "alone", requested_partitions=1)
    names = [b"%d" % number for number in range(30)]
    for name in names:
        await produce(station, "mail", name)
    station.backends["two"].break_()
    await station.restart()
    assert await states(station, "mail") == {"one": {"available"}, "two": {"failing"}}
    await produce(station, "mail", b"more")
    await produce(station, "alone", b"x")
    station.backends["two"].mend()
    assert await take(station, "mail", len(names) + 1) == Counter([*names, b"more"])


async def test_with_all_backends_down_a_produce_ends_at_its_own_timeout(station: Station) -> None:
    """And not before; the same one later is taken."""
    await create(station, "mail", requested_partitions=3)
    for backend in station.backends.values():
        backend.break_()
    before_ms = station.router.clock.now_ms()
    with pytest.raises(TimedOut):
        await station.router.produce("mail", [Item(payload=b"a")], [], 1, 300)
    assert station.router.clock.now_ms() - before_ms >= 300
    for backend in station.backends.values():
        backend.mend()
    await produce(station, "mail", b"a")


async def test_a_queue_on_a_backend_that_is_down_is_refused_by_name(station: Station) -> None:
    """It may be tried again, and what was made already is dropped, without a restart."""
    station.backends["two"].break_()
    with pytest.raises(RetryRequest, match=r"^backend is failing; 'two' "):
        await create(station, "mail", requested_partitions=3)
    with pytest.raises(NoSuchQueue):
        station.router.queue("mail")

    async def one_is_clean() -> bool:
        return not await station.backends["one"].list()

    await until(one_is_clean)
    station.backends["two"].mend()

    async def nothing_is_doomed() -> bool:
        return not await station.catalog.doomed()

    await until(nothing_is_doomed)
    assert await stored(station) == []
    await create(station, "mail", requested_partitions=3)


async def test_partitions_are_dropped_when_their_backend_is_back(station: Station) -> None:
    """A queue can be deleted while a backend is down; its partitions there go later, without a restart."""
    await create(station, "mail", requested_partitions=3)
    station.backends["one"].break_()
    await station.router.management.delete_queue("mail", force=True)
    station.backends["one"].mend()

    async def nothing_is_stored() -> bool:
        return not await stored(station)

    await until(nothing_is_stored)


async def test_a_burial_takes_nothing_of_a_queue_that_is_being_made(station: Station) -> None:
    """Places are doomed until their queue is in the catalog, and yet they are not dropped meanwhile."""
    burial = station.host.burial
    stopping = asyncio.Event()

    async def bury_all_the_time() -> None:
        while not stopping.is_set():
            await burial.bury()
            await asyncio.sleep(0)

    burying = asyncio.ensure_future(bury_all_the_time())
    try:
        for number in range(20):
            await create(station, f"queue-{number}", requested_partitions=3)
    finally:
        stopping.set()
        await burying
    assert len(await stored(station)) == 60
    for number in range(20):
        assert set().union(*(await states(station, f"queue-{number}")).values()) == {"available"}


async def test_a_backend_that_does_not_answer_is_not_well(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for the health gets an answer for all of them."""

    async def never() -> Health:
        await asyncio.Event().wait()
        raise AssertionError

    async def at_once() -> Health:
        return Health(ok=True, details="")

    monkeypatch.setattr(station.backends["one"], "health", at_once)
    monkeypatch.setattr(station.backends["two"], "health", never)
    monkeypatch.setattr("cluster.router._HEALTH_PATIENCE_S", 0.01)
    health = await station.router.health()
    assert (health["one"].ok, health["two"].ok) == (True, False)
    assert "did not answer" in health["two"].details
