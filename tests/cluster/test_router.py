"""Management of queues through the router: creating, changing, deleting, and what is refused."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from querator.errors import Conflict, InvalidRequest, NoSuchQueue, QueratorError
from querator.items import Item
from querator.queues import QueueSettings, RetryPolicy
from querator.requests import Produced, RetryItem, Scheduled
from querator.waist import StorageError
from tests.cluster.conftest import Station

TIMEOUT_MS = 20_000


async def create(station: Station, name: str, **settings: object) -> None:
    await station.router.management.create_queue(QueueSettings(queue_name=name, **settings))  # type: ignore[arg-type]


async def produce(station: Station, name: str, *payloads: bytes) -> Produced:
    items = [Item(payload=payload) for payload in payloads]
    return await station.router.produce(name, items, [], sum(map(len, payloads)), TIMEOUT_MS)


async def reserve(station: Station, name: str, count: int = 1) -> tuple[int, list[str], list[bytes]]:
    given = await station.router.reserve(name, count, "consumer", TIMEOUT_MS)
    items = [item for run in given.runs for item in run.items]
    return given.partition, [i for run in given.runs for i in run.ids()], [item.payload for item in items]


async def total(station: Station, name: str) -> int:
    stats = await station.router.queue_stats(name)
    return sum(partition.total for each in stats.logical_queues for partition in each.partitions)


async def stored(station: Station) -> list[int]:
    return sorted([uid for backend in station.backends.values() for uid in await backend.list()])


async def test_a_queue_is_created_with_its_partitions_on_the_backends(station: Station) -> None:
    """In proportion to affinity, and open at once; the same name again is refused and leaves nothing behind."""
    await create(station, "mail", requested_partitions=6)
    queue = station.router.queue("mail")
    assert Counter(place.backend for place in queue.partitions) == {"one": 4, "two": 2}
    before = await stored(station)
    with pytest.raises(Conflict, match="already exists"):
        await create(station, "mail")
    assert await stored(station) == before
    await produce(station, "mail", b"a")
    assert (await reserve(station, "mail"))[2] == [b"a"]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"lease_timeout_ms": 0}, "lease_timeout"),
        ({"expire_timeout_ms": -1}, "expire_timeout"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"max_attempts": 65_536}, "max_attempts"),
        ({"requested_partitions": 0}, "requested_partitions"),
        ({"requested_partitions": 100_000}, "requested_partitions"),
        ({"reference": "x" * 2001}, "reference"),
        ({"retry_policy": RetryPolicy(base_ms=-1)}, "retry_policy.base"),
        ({"retry_policy": RetryPolicy(factor=0.5)}, "retry_policy.factor"),
        ({"retry_policy": RetryPolicy(factor=float("nan"))}, "retry_policy.factor"),
        ({"retry_policy": RetryPolicy(base_ms=10, max_ms=5)}, "retry_policy.max"),
        ({"retry_policy": RetryPolicy(jitter=1.5)}, "retry_policy.jitter"),
        ({"dead_queue": "missing"}, "dead_queue"),
        ({"dead_queue": "q"}, "dead_queue"),
        ({"dead_queue": "a b"}, "dead_queue"),
    ],
)
async def test_settings_that_are_not_allowed_are_refused_by_field(
    station: Station, settings: dict[str, object], field: str
) -> None:
    """Neither a create nor an update takes them, and nothing is made or changed."""
    with pytest.raises(InvalidRequest, match=f"^{field} is invalid; "):
        await create(station, "q", **settings)
    assert await stored(station) == []
    await create(station, "q")
    if "requested_partitions" not in settings:
        with pytest.raises(InvalidRequest, match=f"^{field} is invalid; "):
            await station.router.management.update_queue("q", settings)
    assert station.router.queue("q").settings == QueueSettings(queue_name="q")


async def test_a_partial_update_resets_nothing_else(station: Station) -> None:
    """Only what is named changes, for good, and the number of partitions never does."""
    await create(station, "dead")
    settings = QueueSettings(
        queue_name="mail",
        reference="r",
        dead_queue="dead",
        lease_timeout_ms=5000,
        expire_timeout_ms=6000,
        max_attempts=7,
        requested_partitions=2,
        retry_policy=RetryPolicy(base_ms=8),
    )
    await station.router.management.create_queue(settings)
    created_at_ms = station.router.queue("mail").created_at_ms
    await station.router.management.pause_queue("mail", produce=True, reserve=None)
    await station.router.management.update_queue("mail", {"max_attempts": 9})
    await station.restart()
    queue = station.router.queue("mail")
    assert queue.settings == QueueSettings(
        **{
            **{field: getattr(settings, field) for field in settings.__struct_fields__},
            "max_attempts": 9,
        }
    )
    assert (queue.produce_paused, queue.reserve_paused, queue.created_at_ms) == (True, False, created_at_ms)
    with pytest.raises(InvalidRequest, match="requested_partitions"):
        await station.router.management.update_queue("mail", {"requested_partitions": 3})
    with pytest.raises(NoSuchQueue):
        await station.router.management.update_queue("other", {"max_attempts": 1})


async def test_an_update_holds_at_once(station: Station) -> None:
    """The logical queue that is open follows the new settings without a restart."""
    await create(station, "mail")
    await station.router.management.update_queue("mail", {"max_attempts": 1})
    await produce(station, "mail", b"a")
    partition, ids, _ = await reserve(station, "mail")
    await station.router.retry("mail", partition, [RetryItem(ids[0])], TIMEOUT_MS)
    assert await total(station, "mail") == 0


async def test_a_dead_queue_has_none_of_its_own(station: Station) -> None:
    """Chains of dead queues are refused from both ends."""
    await create(station, "dead")
    await create(station, "mail", dead_queue="dead")
    await create(station, "other")
    with pytest.raises(InvalidRequest, match="dead queue of its own"):
        await create(station, "third", dead_queue="mail")
    with pytest.raises(InvalidRequest, match="is the dead queue of 'mail'"):
        await station.router.management.update_queue("dead", {"dead_queue": "other"})


async def test_a_dead_queue_in_use_cannot_be_deleted(station: Station) -> None:
    """Not even by force; once nobody names it any more, it can."""
    await create(station, "dead")
    await create(station, "mail", dead_queue="dead")
    with pytest.raises(Conflict, match="in use"):
        await station.router.management.delete_queue("dead", force=True)
    await station.router.management.update_queue("mail", {"dead_queue": ""})
    await station.router.management.delete_queue("dead", force=False)


@pytest.mark.parametrize("what", ["ready", "leased", "scheduled"])
async def test_a_queue_with_items_is_deleted_by_force_only(station: Station, what: str) -> None:
    """Ready, leased and scheduled items all count as items."""
    await create(station, "mail")
    if what == "scheduled":
        later = Scheduled(station.router.clock.now_ms() + 3_600_000, Item(payload=b"a"))
        await station.router.produce("mail", [], [later], 1, TIMEOUT_MS)
    else:
        await produce(station, "mail", b"a")
    if what == "leased":
        await reserve(station, "mail")
    with pytest.raises(Conflict, match="not empty"):
        await station.router.management.delete_queue("mail", force=False)
    await station.router.management.delete_queue("mail", force=True)
    with pytest.raises(NoSuchQueue):
        station.router.queue("mail")
    assert await stored(station) == []


async def test_deleting_and_re_creating_does_not_bring_old_items_back(station: Station) -> None:
    """A new queue of the same name has new partitions, which are empty, also after a restart."""
    await create(station, "mail", requested_partitions=2)
    before = await stored(station)
    await produce(station, "mail", b"old")
    await station.router.management.delete_queue("mail", force=True)
    await create(station, "mail", requested_partitions=2)
    assert await total(station, "mail") == 0
    assert not set(before) & set(await stored(station))
    await station.restart()
    assert await total(station, "mail") == 0
    await produce(station, "mail", b"new")
    assert (await reserve(station, "mail"))[2] == [b"new"]


async def test_a_waiting_reserve_of_a_deleted_queue_is_answered(station: Station) -> None:
    """Nobody waits for a queue that is gone."""
    await create(station, "mail")
    waiting = station.router.reserve("mail", 1, "consumer", TIMEOUT_MS)
    await station.router.management.delete_queue("mail", force=False)
    with pytest.raises(QueratorError):
        await waiting


async def test_what_is_answered_200_is_not_deleted_without_force(station: Station) -> None:
    """A produce that is taken while an empty queue is being deleted is refused, or keeps the queue."""
    await create(station, "mail")
    deleting = asyncio.ensure_future(station.router.management.delete_queue("mail", force=False))
    kept = 0
    while not deleting.done():
        try:
            await produce(station, "mail", b"a")
            kept += 1
        except QueratorError:
            await asyncio.sleep(0)
    if deleting.exception() is None:
        assert kept == 0
    else:
        assert await total(station, "mail") == kept


async def test_partitions_that_could_not_be_dropped_are_dropped_at_the_next_start(station: Station) -> None:
    """A backend that fails while a queue is deleted keeps its partitions no longer than necessary."""
    await create(station, "mail", requested_partitions=3)
    station.backends["one"].break_()
    await station.router.management.delete_queue("mail", force=True)
    station.backends["one"].mend()
    assert len(await stored(station)) == 2
    await station.restart()
    assert await stored(station) == []
    assert await station.catalog.doomed() == []


async def test_a_create_that_failed_half_way_leaves_nothing(station: Station) -> None:
    """Partitions made for a queue that never came to be are dropped at the next start."""
    station.backends["two"].break_()
    with pytest.raises((StorageError, QueratorError)):
        await create(station, "mail", requested_partitions=3)
    station.backends["two"].mend()
    with pytest.raises(NoSuchQueue):
        station.router.queue("mail")
    await station.restart()
    assert await stored(station) == []
    await create(station, "mail", requested_partitions=3)


async def test_everything_is_there_after_a_restart(station: Station) -> None:
    """Queues, items and leases; each opening has a higher epoch than any before."""
    await create(station, "mail", requested_partitions=2)
    await produce(station, "mail", b"a")
    await produce(station, "mail", b"b")
    partition, ids, payloads = await reserve(station, "mail")
    before = station.catalog.assignment("mail")
    await station.restart()
    after = station.catalog.assignment("mail")
    assert min(place.epoch for place in after.logical_queues) > before.epoch
    await station.router.complete("mail", partition, ids, TIMEOUT_MS)
    assert {payloads[0], *(await reserve(station, "mail"))[2]} == {b"a", b"b"}


async def test_dead_letters_reach_the_dead_queue_through_the_host(station: Station) -> None:
    """From any partition of the one to the other, also if they died before a restart."""
    await create(station, "dead", requested_partitions=2)
    await create(station, "mail", dead_queue="dead", requested_partitions=3)
    for number in range(6):
        await produce(station, "mail", b"%d" % number)
    died: list[bytes] = []
    while await total(station, "mail"):
        partition, ids, payloads = await reserve(station, "mail", 10)
        await station.router.retry("mail", partition, [RetryItem(i, dead=True) for i in ids], TIMEOUT_MS)
        died.extend(payloads)
    await station.restart()
    arrived: list[bytes] = []
    while len(arrived) < 6:
        partition, ids, payloads = await reserve(station, "dead", 10)
        await station.router.complete("dead", partition, ids, TIMEOUT_MS)
        arrived.extend(payloads)
    assert sorted(arrived) == sorted(died)
    assert await total(station, "dead") == 0


async def test_queues_are_listed_from_the_pivot_on_and_by_namespace(station: Station) -> None:
    """In the order of names, the pivot included."""
    for name, namespace in (("c", "x"), ("a", "x"), ("b", "y"), ("d", "x")):
        await create(station, name, namespace=namespace)
    assert [queue.name for queue in await station.router.list_queues("", 10, "")] == ["a", "b", "c", "d"]
    assert [queue.name for queue in await station.router.list_queues("b", 2, "")] == ["b", "c"]
    assert [queue.name for queue in await station.router.list_queues("b", 2, "x")] == ["c", "d"]


@pytest.mark.parametrize("name", ["../../escape", "a/b", "'; DROP TABLE entry; --".replace(" ", ""), "%", "CON", "."])
async def test_names_never_reach_paths_or_statements(station: Station, name: str) -> None:
    """A hostile name is a name like any other, and no other queue answers to it."""
    await create(station, name)
    await create(station, "mail")
    await produce(station, name, b"a")
    assert await total(station, "mail") == 0
    await station.restart()
    assert (await reserve(station, name))[2] == [b"a"]
    await station.router.management.delete_queue(name, force=True)
    assert [queue.name for queue in await station.router.list_queues("", 10, "")] == ["mail"]


async def test_calls_of_an_unknown_queue_are_refused(station: Station) -> None:
    """Every call says that there is no such queue."""
    router = station.router
    with pytest.raises(NoSuchQueue):
        router.produce("no", [], [], 0, 1000)
    with pytest.raises(NoSuchQueue):
        router.reserve("no", 1, "c", 1000)
    with pytest.raises(NoSuchQueue):
        router.complete("no", 0, [], 1000)
    for call in (router.queue_stats("no"), router.reload_queue("no"), router.management.delete_queue("no", force=True)):
        with pytest.raises(NoSuchQueue):
            await call


async def test_a_backend_that_is_gone_from_the_configuration_is_told_by_name(station: Station) -> None:
    """A start without a backend that still has partitions says which, instead of failing with a mere key."""
    await create(station, "mail", requested_partitions=3)
    await station.stop()
    gone = station.backends.pop("two")
    with pytest.raises(Exception, match="two") as caught:
        await station.start()
    station.backends["two"] = gone
    await station.restart()
    assert not isinstance(caught.value, KeyError)


async def test_the_health_of_each_backend_is_told(station: Station) -> None:
    """By its name, and a broken one is not well."""
    station.backends["two"].break_()
    health = await station.router.health()
    assert (health["one"].ok, health["two"].ok) == (True, False)
    station.backends["two"].mend()
