"""A queue is deleted if it is empty, while its owners come and go: with nothing in it, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster import answers
from cluster.assignment import NOBODY, Assignment
from cluster.coordinator import CoordinationError
from querator.errors import Conflict, NoSuchQueue, RetryRequest
from querator.requests import Reservation
from tests.cluster.trio import Site, Trio, payloads, trio_in, until

PARTITIONS = 3


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    async with trio_in(tmp_path) as trio:
        await trio.sites[0].create("mail", requested_partitions=PARTITIONS, logical_queues=3)
        await trio.until_spread("mail", PARTITIONS)
        yield trio


async def delete(site: Site) -> None:
    await site.participant.router.management.delete_queue("mail", force=False)


async def use(site: Site) -> Reservation:
    await site.produce("mail", b"x")
    return await site.reserve("mail")


async def test_an_empty_queue_is_deleted(trio: Trio) -> None:
    """From any instance, whoever owns it."""
    await delete(trio.sites[2])
    with pytest.raises(NoSuchQueue):
        await trio.sites[2].produce("mail", b"x")


async def test_a_queue_that_was_not_deleted_works_on(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the coordination refuses or fails after everybody has stopped, everybody goes on."""
    a, b, c = trio.sites

    async def fail(*_: object, **__: object) -> None:
        raise CoordinationError("away")

    monkeypatch.setattr(a.participant.catalog, "delete", fail)
    with pytest.raises(RetryRequest, match="away"):
        await delete(a)
    for site in (a, b, c):
        assert payloads(await use(site)) == [b"x"]


async def test_a_queue_thaws_when_whoever_wanted_to_delete_it_has_died(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one instance has stopped at another does not stay so for ever."""
    a, b, _ = trio.sites
    monkeypatch.setattr(answers, "FROZEN_MS", 20)
    await a.participant.router.at_all("mail", "freeze")

    async def works() -> bool:
        try:
            await b.produce("mail", b"x")
        except RetryRequest:
            return False
        return True

    await until(works, "the queue takes items again")


async def test_a_queue_with_a_partition_that_nobody_owns_is_not_taken_for_empty(trio: Trio) -> None:
    """What the partition holds is not known, whatever the others say."""
    a, _, _ = trio.sites
    catalog = a.participant.catalog
    present = catalog.assignment("mail")
    first, *rest = sorted(present.logical_queues, key=lambda place: place.instance == "a")
    nobody = type(first)(number=first.number, instance=NOBODY, epoch=present.epoch + 1, partitions=first.partitions)
    changed = Assignment(epoch=present.epoch + 1, logical_queues=(nobody, *rest))
    catalog._assignments.put("mail", changed, 1 << 40)
    with pytest.raises(Conflict, match="is not known now"):
        await delete(a)


async def test_a_queue_that_moves_while_it_is_looked_at_is_not_deleted(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new owner may have taken items that nobody has counted."""
    a, _, _ = trio.sites
    catalog = a.participant.catalog
    router = a.participant.router
    at_all = router.at_all

    async def at_all_and_move(queue_name: str, call: str, *arguments: object) -> list[object]:
        answered = await at_all(queue_name, call, *arguments)
        if call == "freeze":
            present = catalog.assignment(queue_name)
            first, *rest = present.logical_queues
            moved = type(first)(
                number=first.number, instance=rest[0].instance, epoch=present.epoch + 1, partitions=first.partitions
            )
            after = Assignment(epoch=present.epoch + 1, logical_queues=(moved, *rest))
            assert await catalog.assign(queue_name, after, {})
        return answered

    monkeypatch.setattr(router, "at_all", at_all_and_move)
    with pytest.raises(Conflict):
        await delete(a)
    assert catalog.find("mail") is not None
