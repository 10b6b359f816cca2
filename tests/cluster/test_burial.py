"""Partitions of which no queue was made are dropped, also if the coordination was away when the making failed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.coordinator import CoordinationError
from querator.queues import PartitionPlace
from tests.cluster.conftest import Station


async def test_what_could_not_be_let_go_of_is_dropped_later(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instance that began to make a queue lives on, and does not keep for ever what it made for it."""
    burial, lease = station.host.burial, station.participant.membership.lease
    give_up = station.catalog.give_up
    is_away = True

    async def give_up_if_there(places: Sequence[PartitionPlace]) -> None:
        if is_away:
            raise CoordinationError("away")
        await give_up(places)

    async def begin_to_make() -> None:
        async with burial.making(["one"], lease) as (place,):
            await station.backends["one"].create(place.uid)
            raise ValueError("it fails")

    monkeypatch.setattr(station.catalog, "give_up", give_up_if_there)
    with pytest.raises(ValueError, match="it fails"):
        await begin_to_make()
    assert not await burial.bury()
    assert await station.backends["one"].list() != []
    is_away = False
    assert await burial.bury()
    assert await station.backends["one"].list() == []
