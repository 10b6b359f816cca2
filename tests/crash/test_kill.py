"""`kill -9` of the real server under load, many times: nothing is lost, nothing is completed twice, no lease doubled.

`QUERATOR_KILLS` says how often, `QUERATOR_SEED` names another course of events. What the clients do follows the seed;
where exactly the kill meets the server does not, and is as good as any.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.postgres_server import Postgres
from tests.crash.database import postgres
from tests.crash.load import Crew, crew_of
from tests.crash.server import Backend, Server, server_in
from tests.history.checker import Report
from tests.schemas import new_schema

KILLS = int(os.environ.get("QUERATOR_KILLS", "25"))
KILLS_ON_POSTGRES = (KILLS + 3) // 4  # a start there takes longer
SEED = int(os.environ.get("QUERATOR_SEED", "2319"))


async def kill_often(server: Server, crew: Crew, rng: random.Random, kills: int) -> None:
    """Mostly under load, now and then while the server is still opening what the last kill left."""
    loop = asyncio.get_running_loop()
    start_s = 0.0
    for _ in range(kills):
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


async def report_after(folder: Path, storage: Sequence[Backend], kills: int) -> Report:
    rng = random.Random(SEED)
    async with server_in(folder, storage) as server, crew_of(server, SEED) as crew:
        await server.start()
        await crew.create_queues()
        await server.kill()
        async with crew.at_work(producers=4, consumers=6):
            await kill_often(server, crew, rng, kills)
        await server.start()
        await crew.count()
        await crew.drain()
        await server.stop()
        return crew.check()


def judge(report: Report, kills: int) -> None:
    assert report.violations == [], "\n".join(map(str, report.violations[:20]))
    assert report.produced > kills
    assert report.redelivered
    assert report.unknown
    assert report.ordered


@pytest.mark.slow
async def test_nothing_is_lost_or_done_twice_whenever_the_server_is_killed(
    tmp_path: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """After any number of kills under load, every acknowledged item is completed exactly once under one lease at a time."""
    report = await report_after(tmp_path, (), KILLS)
    with capsys.disabled():
        pytestconfig.get_terminal_writer().line(f"\nkills {KILLS}, {report} (seed {SEED})")
    judge(report, KILLS)


@pytest.mark.slow
async def test_the_same_holds_with_the_partitions_on_postgresql(
    tmp_path: Path, database: Postgres, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a killed server had sent to the database is there as a whole or not at all, and what comes late is refused."""
    report = await report_after(tmp_path, [postgres(database, new_schema())], KILLS_ON_POSTGRES)
    with capsys.disabled():
        pytestconfig.get_terminal_writer().line(f"\nkills on PostgreSQL {KILLS_ON_POSTGRES}, {report} (seed {SEED})")
    judge(report, KILLS_ON_POSTGRES)
