"""Claims on the names of backends: one name is one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.claims import SHARED, claim_backend, home_of
from cluster.coordinator import Coordinator
from cluster.one_host import OneHostCoordinator
from querator.errors import RequestFailed, RetryRequest


@pytest.fixture
async def coordinator(tmp_path: Path) -> AsyncIterator[Coordinator]:
    coordinator = await OneHostCoordinator.open(tmp_path / "cluster.db")
    yield coordinator
    await coordinator.close()


async def test_a_name_stays_with_its_home(coordinator: Coordinator) -> None:
    """Who claimed a name claims it again, whatever its host is called by then; another home is refused by name."""
    await claim_backend(coordinator, "local-0", "a", "alpha")
    await claim_backend(coordinator, "local-0", "a", "renamed")
    with pytest.raises(RequestFailed, match=r"'local-0' .* 'alpha', and storage\[\]\.name must be unique"):
        await claim_backend(coordinator, "local-0", "b", "beta")
    await claim_backend(coordinator, "local-1", "b", "beta")


async def test_what_all_can_reach_is_claimed_by_all(coordinator: Coordinator) -> None:
    """A shared backend has one home everywhere, and no file may have its name."""
    for host in ("alpha", "beta"):
        await claim_backend(coordinator, "pg-a", SHARED, host)
    with pytest.raises(RequestFailed, match="'alpha' and elsewhere share it"):
        await claim_backend(coordinator, "pg-a", "a", "alpha")


async def test_of_many_that_claim_at_once_one_has_it(coordinator: Coordinator) -> None:
    """Exactly one of ten homes gets the name."""
    claims = [claim_backend(coordinator, "local-0", f"home-{number}", "alpha") for number in range(10)]
    outcomes = await asyncio.gather(*claims, return_exceptions=True)
    assert [outcome for outcome in outcomes if not isinstance(outcome, RequestFailed)] == [None]


async def test_without_coordination_nothing_is_claimed(coordinator: Coordinator) -> None:
    """The caller is told to try again, not that the name is taken."""
    await coordinator.close()
    with pytest.raises(RetryRequest, match="coordination does not answer"):
        await claim_backend(coordinator, "local-0", "a", "alpha")


def test_a_folder_keeps_its_name_when_it_is_moved(tmp_path: Path) -> None:
    """The name is made once, is another one for another folder, and goes where the folder goes."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    name = home_of(first)
    assert home_of(first) == name != home_of(second)
    assert home_of(first.rename(tmp_path / "moved")) == name
    assert [path.name for path in second.iterdir()] == ["home"]
