"""The catalog: queues and places, changed by compare-and-set alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from cluster.assignment import Assignment
from cluster.catalog import Catalog
from cluster.coordinator import Entry
from cluster.one_host import OneHostCoordinator
from querator.errors import Conflict, NoSuchQueue
from querator.queues import PartitionPlace, Queue, QueueSettings, RetryPolicy


@pytest.fixture
async def coordinator(tmp_path: Path) -> AsyncIterator[OneHostCoordinator]:
    coordinator = await OneHostCoordinator.open(tmp_path / "coordination.db")
    yield coordinator
    await coordinator.close()


@pytest.fixture
async def catalog(coordinator: OneHostCoordinator) -> Catalog:
    return await loaded(coordinator)


async def loaded(coordinator: OneHostCoordinator) -> Catalog:
    catalog = Catalog(coordinator)
    await catalog.load()
    return catalog


def queue_of(name: str, *places: PartitionPlace) -> Queue:
    return Queue(settings=QueueSettings(queue_name=name), partitions=places, created_at_ms=1, updated_at_ms=1)


async def test_a_queue_is_found_by_every_catalog_with_all_its_fields(
    coordinator: OneHostCoordinator, catalog: Catalog
) -> None:
    """What is created is there after a load, field by field."""
    settings = QueueSettings(
        queue_name="../mail'%", reference="r", lease_timeout_ms=5, max_attempts=3, retry_policy=RetryPolicy(base_ms=7)
    )
    places = await catalog.new_places(["one", "two"])
    queue = Queue(settings=settings, partitions=places, created_at_ms=1, updated_at_ms=2, reserve_paused=True)
    await catalog.create(queue)
    assert (await loaded(coordinator)).get(queue.name) == queue
    assert catalog.find("other") is None
    with pytest.raises(NoSuchQueue):
        catalog.get("other")


async def test_uids_are_never_given_twice(coordinator: OneHostCoordinator, catalog: Catalog) -> None:
    """Neither to two at once nor after a queue and its partitions are gone."""
    other = await loaded(coordinator)
    rounds = await asyncio.gather(*(each.new_places(["one"] * 3) for each in (catalog, other, catalog)))
    uids = [place.uid for places in rounds for place in places]
    assert len(set(uids)) == 9
    queue = queue_of("mail", *rounds[0])
    await catalog.create(queue)
    await catalog.delete(queue)
    for uid, _ in await catalog.doomed():
        await catalog.buried(uid)
    assert (await catalog.new_places(["one"]))[0].uid > max(uids)


async def test_places_are_doomed_until_a_queue_takes_them_and_after_it_is_gone(catalog: Catalog) -> None:
    """A partition that belongs to no queue is always known, so that it can be dropped."""
    places = await catalog.new_places(["one", "two"])
    expected = [(place.uid, place.backend) for place in places]
    assert sorted(await catalog.doomed()) == expected
    queue = queue_of("mail", *places)
    await catalog.create(queue)
    assert await catalog.doomed() == []
    await catalog.delete(queue)
    assert sorted(await catalog.doomed()) == expected
    await catalog.buried(places[0].uid)
    assert await catalog.doomed() == expected[1:]


async def test_of_two_changes_at_once_one_is_refused(coordinator: OneHostCoordinator, catalog: Catalog) -> None:
    """Whoever changes or deletes on old knowledge is told, and nothing is lost."""
    await catalog.create(queue_of("mail", *await catalog.new_places(["one"])))
    other = await loaded(coordinator)
    with pytest.raises(Conflict, match="already exists"):
        await other.create(queue_of("mail", *await other.new_places(["one"])))
    await catalog.replace(msgspec.structs.replace(catalog.get("mail"), updated_at_ms=5))
    with pytest.raises(Conflict, match="changed"):
        await other.replace(msgspec.structs.replace(other.get("mail"), updated_at_ms=9))
    with pytest.raises(Conflict, match="changed"):
        await other.delete(other.get("mail"))
    await other.load()
    assert other.get("mail").updated_at_ms == 5
    await other.delete(other.get("mail"))
    assert (await loaded(coordinator)).all() == []


async def test_queues_come_in_the_order_of_names(catalog: Catalog) -> None:
    """Whatever the order in which they were made."""
    for name in ("b", "a", "c"):
        await catalog.create(queue_of(name, *await catalog.new_places(["one"])))
    assert [queue.name for queue in catalog.all()] == ["a", "b", "c"]


@pytest.mark.parametrize("index", [0, 1], ids=["first", "second"])
async def test_a_partition_that_a_queue_takes_meanwhile_is_not_condemned(
    coordinator: OneHostCoordinator, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    """Whoever wants to drop a partition looks twice, and a queue may be made of it between the two looks."""
    places = await catalog.new_places(["one", "two"])
    maker = catalog
    burier = await loaded(coordinator)
    looks = 0
    get = coordinator.get

    async def slow_get(key: str) -> Entry | None:
        nonlocal looks
        looks += 1
        if looks == 2:
            await maker.create(queue_of("mail", *places))
        return await get(key)

    monkeypatch.setattr(coordinator, "get", slow_get)
    assert not await burier.condemn(places[index].uid)


async def test_a_queue_that_is_made_again_begins_above_the_epochs_of_the_one_before(catalog: Catalog) -> None:
    """So that nobody takes what was assigned of the one for what is assigned of the other."""
    queue = queue_of("mail", *await catalog.new_places(["one"]))
    await catalog.create(queue)
    last = 0
    for _ in range(5):
        last = catalog.assignment("mail").epoch + 1
        assert await catalog.assign("mail", Assignment(epoch=last), {})
    await catalog.delete(queue)
    await catalog.create(queue_of("mail", *await catalog.new_places(["one"])))
    assert catalog.assignment("mail").epoch > last
