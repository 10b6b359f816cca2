"""How many logical queues follow from the load."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.loads import PREFIX, Demand, QueueLoad, decode_report, encode_report, wanted_by
from cluster.mirror import Mirror
from cluster.one_host import OneHostCoordinator


@pytest.fixture
async def reports(tmp_path: Path) -> AsyncIterator[Mirror[dict[str, QueueLoad]]]:
    coordinator = await OneHostCoordinator.open(tmp_path / "cluster.db")
    yield Mirror(coordinator, PREFIX, decode_report)
    await coordinator.close()


@pytest.mark.parametrize(
    ("loads", "wanted"),
    [
        ([], 1),
        ([QueueLoad(1, 0)], 1),
        ([QueueLoad(4, 0)], 1),
        ([QueueLoad(3, 0), QueueLoad(2, 0)], 2),
        ([QueueLoad(0, 5_001)], 2),
        ([QueueLoad(64, 20_000)], 16),
    ],
)
def test_more_consumers_or_more_items_want_more_logical_queues(loads: list[QueueLoad], wanted: int) -> None:
    """One serves a few consumers and some thousand items a second, over all instances together."""
    assert wanted_by(loads) == wanted


def test_a_report_survives_the_way(reports: Mirror[dict[str, QueueLoad]]) -> None:
    """What is written is what is read."""
    report = {"mail": QueueLoad(3, 500)}
    assert decode_report(encode_report(report)) == report
    assert len(reports) == 0


async def test_demand_grows_at_once_and_shrinks_after_a_while(reports: Mirror[dict[str, QueueLoad]]) -> None:
    """A short lull moves nothing, a long one does, and a new peak in between starts the wait again."""
    demand = Demand(reports)
    reports.put("a", {"mail": QueueLoad(12, 0)}, 1)
    assert demand.of("mail", 0) == 3
    reports.put("a", {}, 2)
    assert demand.of("mail", 1_000) == 3
    reports.put("a", {"mail": QueueLoad(12, 0)}, 3)
    assert demand.of("mail", 20_000) == 3
    reports.put("a", {}, 4)
    assert demand.of("mail", 40_000) == 3
    assert demand.of("mail", 69_999) == 3
    assert demand.of("mail", 70_000) == 1
