"""The database under the server crashes, again and again: the server stays, and nothing is lost or completed twice.

`QUERATOR_KILLS` scales how often, `QUERATOR_SEED` names another course of events.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.postgres_server import Postgres
from tests.crash.database import postgres
from tests.crash.load import crew_of
from tests.crash.server import PATIENCE_S, server_in
from tests.schemas import new_schema

CRASHES = (int(os.environ.get("QUERATOR_KILLS", "25")) + 4) // 5
SEED = int(os.environ.get("QUERATOR_SEED", "2319"))

# Some give up while the database is away, and then do not know what became of their items.
PRODUCE_TIMEOUTS_MS = (50, 10_000)
RECOVERY = "all server processes terminated"  # as the database's log has it


def restart(database: Postgres, _: random.Random) -> None:
    """`pg_ctl restart -m immediate`."""
    database.restart_immediate()


def kill_one(database: Postgres, rng: random.Random) -> None:
    """`kill -9` of one server process, after which PostgreSQL ends all others and recovers."""
    pids = database.backend_pids()
    assert pids, "the server is connected"
    recoveries = database.log().count(RECOVERY)
    assert database.kill_backend(rng.choice(pids))
    give_up_at = time.monotonic() + PATIENCE_S
    while database.log().count(RECOVERY) == recoveries:
        assert time.monotonic() < give_up_at, "PostgreSQL did not notice"
        time.sleep(0.01)
    database.wait_until_open()


@pytest.mark.slow
@pytest.mark.parametrize("crash", [restart, kill_one], ids=["restart", "kill"])
async def test_nothing_is_lost_or_done_twice_whenever_the_database_crashes(
    crash: Callable[[Postgres, random.Random], None],
    tmp_path: Path,
    database: Postgres,
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The partitions come back by themselves, and every acknowledged item is completed exactly once."""
    rng = random.Random(SEED)
    async with (
        server_in(tmp_path, [postgres(database, new_schema())]) as server,
        crew_of(server, SEED, produce_timeouts_ms=PRODUCE_TIMEOUTS_MS) as crew,
    ):
        await server.start()
        await crew.create_queues()
        async with crew.at_work(producers=4, consumers=6):
            for _ in range(CRASHES):
                await crew.rounds(rng.randrange(1, 250))
                await asyncio.sleep(rng.uniform(0, 0.01))
                await asyncio.to_thread(crash, database, rng)
                await server.until_health("pass")
        await crew.count()
        await crew.drain()
        assert await server.stop() == 0
        report = crew.check()
    with capsys.disabled():
        pytestconfig.get_terminal_writer().line(f"\ncrashes of the database {CRASHES}, {report} (seed {SEED})")
    assert report.violations == [], "\n".join(map(str, report.violations[:20]))
    assert report.produced > CRASHES
    assert report.ordered
