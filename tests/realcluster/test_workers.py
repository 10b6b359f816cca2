"""`querator serve --workers 2` on one host: one of its processes is killed under load."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.crash.load import LEASE_MS, PATIENT_MS, Clients, unhurried_session
from tests.history.events import QueueFacts
from tests.realcluster.cluster import until
from tests.realcluster.instance import Instance
from tests.realcluster.verdict import SEED, Tell, report_of

WIDE = QueueFacts(queue="wide", partitions=4, lease_timeout_ms=LEASE_MS)


def workers(instance: Instance) -> list[int]:
    """The processes under the one that was started."""
    children = Path(f"/proc/{instance.pid}/task/{instance.pid}/children").read_text()
    return [int(pid) for pid in children.split()]


@pytest.mark.slow
async def test_nothing_is_lost_or_done_twice_when_a_worker_is_killed(tmp_path: Path, tell: Tell) -> None:
    """The other worker has what it owned, and a new one takes its place."""
    async with aiohttp.ClientSession() as session, unhurried_session() as calls:
        instance = Instance("host", tmp_path / "host", session)
        instance.configure(workers=2)
        try:
            await instance.start()
            crew = Clients(lambda _: instance, calls, SEED, [WIDE], PATIENT_MS)
            await crew.create_queues(logical_queues="2")
            async with crew.at_work(producers=3, consumers=4):
                for number in range(2):
                    await crew.rounds(50)
                    victim = workers(instance)[number]
                    os.kill(victim, signal.SIGKILL)

                    async def is_replaced(victim: int = victim, count: int = 3 + number) -> bool:
                        return victim not in workers(instance) and len(instance.said("worker serves")) == count

                    await until(is_replaced, "there are two workers again")
            report = await report_of(crew)
            assert await instance.stop() == 0
        finally:
            await instance.close()
    tell(f"killed workers: {report}")
