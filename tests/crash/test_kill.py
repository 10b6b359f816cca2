"""`kill -9` of the real server under load, many times: nothing is lost, nothing is completed twice, no lease doubled.

`QUERATOR_KILLS` says how often, `QUERATOR_SEED` names another course of events. What the clients do follows the seed;
where exactly the kill meets the server does not, and is as good as any.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.crash.load import Crew, crew_of
from tests.crash.server import Server, server_in

KILLS = int(os.environ.get("QUERATOR_KILLS", "25"))
SEED = int(os.environ.get("QUERATOR_SEED", "2319"))


async def kill_often(server: Server, crew: Crew, rng: random.Random) -> None:
    """Mostly under load, now and then while the server is still opening what the last kill left."""
    loop = asyncio.get_running_loop()
    start_s = 0.0
    for _ in range(KILLS):
        if start_s and rng.random() < 0.15:
            await server.launch()
            await asyncio.sleep(rng.uniform(0, start_s))
        else:
            began_s = loop.time()
            await server.start()
            start_s = loop.time() - began_s
            await crew.rounds(rng.randrange(1, 250))
            await asyncio.sleep(rng.uniform(0, 0.01))
        await server.kill()


@pytest.mark.slow
async def test_nothing_is_lost_or_done_twice_whenever_the_server_is_killed(
    tmp_path: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """After any number of kills under load, every acknowledged item is completed exactly once under one lease at a time."""
    rng = random.Random(SEED)
    async with server_in(tmp_path) as server, crew_of(server, SEED) as crew:
        await server.start()
        await crew.create_queues()
        await server.kill()
        async with crew.at_work(producers=4, consumers=6):
            await kill_often(server, crew, rng)
        await server.start()
        await crew.count()
        await crew.drain()
        await server.stop()
        report = crew.check()
    with capsys.disabled():
        pytestconfig.get_terminal_writer().line(f"\nkills {KILLS}, {report} (seed {SEED})")
    assert report.violations == [], "\n".join(map(str, report.violations[:20]))
    assert report.produced > KILLS
    assert report.redelivered
    assert report.unknown
    assert report.ordered
