"""The leader goes on, whatever happens to one of its looks."""

from __future__ import annotations

import pytest

from querator.queues import QueueSettings
from tests.cluster.conftest import Station


async def test_a_look_that_fails_does_not_end_the_leader(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would lead for ever, and nobody would get anything assigned."""
    leader = station.participant._leader
    evaluate = leader.evaluate
    looks = 0

    async def fail_once() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise KeyError("a defect")
        return await evaluate()

    monkeypatch.setattr(leader, "evaluate", fail_once)
    await station.router.management.create_queue(QueueSettings(queue_name="mail"))
    assert looks > 1
    assert station.catalog.assignment("mail").logical_queues
