"""The benchmark's bare loops on a real PostgreSQL, its held snapshot, and what is claimed from its rounds."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import asyncpg
import pytest
from rich.console import Console

from bench.bloat import Observer
from bench.contestants import DATABASE
from bench.generator import _DRIVERS
from bench.limits_postgres import CommitLane, PostgresLimit
from bench.measure import GENERATOR, Counts, Load, Window
from bench.postgres_server import Postgres
from bench.proc import CpuTime
from bench.report import Report, bound, show, write_json
from bench.rounds import Case, Outcome, Round
from bench.suite_postgres import COMMITS, PEER, ROWS, database_cpu_ratio
from tests.schemas import new_schema


def load(postgres: Postgres, target: str) -> Load:
    return Load(target=target, workload="cycle", address=postgres.address, queue_name=new_schema(), batch=5, clients=2)


def short_window() -> Window:
    start = time.monotonic()
    return Window(start, start, start + 0.2)


@pytest.mark.parametrize("target", [COMMITS, ROWS, PEER])
async def test_loops_put_through_what_they_take_in(postgres: Postgres, target: str) -> None:
    """Each loop completes all that it produced, looks that nothing is left, and takes its tables away again."""
    asked = load(postgres, target)
    driver, counts = _DRIVERS[target](asked), Counts()
    await driver.connect()
    try:
        await driver.run(short_window(), counts)
    finally:
        await driver.close()
    assert counts.completed == counts.produced > 0
    connection = await asyncpg.connect(postgres.address)
    left = "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE $1 IN (c.relname, n.nspname)"
    assert await connection.fetchval(left, asked.queue_name) == 0
    await connection.close()


async def test_a_loop_that_leaves_items_behind_fails(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that did not do all of its work is no limit."""

    async def forget(_lane: CommitLane) -> None:
        """Complete nothing."""

    monkeypatch.setattr(CommitLane, "complete", forget)
    driver = PostgresLimit(load(postgres, COMMITS), CommitLane)
    await driver.connect()
    try:
        with pytest.raises(RuntimeError, match="items are left"):
            await driver.run(short_window(), Counts())
    finally:
        await driver.close()


def test_a_snapshot_is_held_and_released(postgres: Postgres) -> None:
    """While it is held, some session keeps the database from removing rows; after its release, none does."""
    holders = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND backend_xmin IS NOT NULL"
    with Observer(postgres.address) as observer:
        with observer.snapshot():
            assert observer.value(holders) == 1
        assert observer.value(holders) == 0
        assert set(observer.sizes()) == {"blocks, MB", "records, MB", "partitions, MB"}


def outcome(role: str, items: int, database_s: float, generator_s: float = 0.1) -> Outcome:
    cpu = {DATABASE: CpuTime(database_s, 0.0), GENERATOR: CpuTime(generator_s, 0.0)}
    one = Round(seconds=1.0, items=items, produced=items, completed=items, retries=0, cpu=cpu, calls={})
    return Outcome(Case(), role, role, [one])


def test_database_time_is_compared_per_item() -> None:
    """Who puts through ten times as much in the same time of the database takes a tenth of it per item."""
    ratio = database_cpu_ratio(outcome("querator", 1000, 0.5), outcome("limit", 100, 0.5))
    assert ratio.median == pytest.approx(0.1)


def test_a_limit_with_a_database_server_is_not_said_to_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the database's processes use counts, and is not taken for waiting."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert bound(outcome("limit", 10, database_s=0.85)) == "all cores, 95% busy"
    assert bound(outcome("limit", 10, database_s=0.4)) == "waiting: cores 50%"


def test_what_was_seen_over_time_is_shown_and_kept(tmp_path: Path) -> None:
    """Rows of a series are in the table and in the JSON, also if its phases have different numbers of rounds."""
    rows = [{"s": 5, "phase": "before", "items/s": 12_345.0}, {"s": 10, "phase": "snapshot held", "items/s": 1.5}]
    before, held = outcome("querator", 10, 0.1), outcome("querator", 10, 0.1)._replace(contestant="held")
    held.rounds.append(held.rounds[0])
    report = Report(preset="bloat", environment={}, outcomes=[before, held], series=rows)
    shown = io.StringIO()
    show(Console(file=shown, width=150), report)
    assert "snapshot held" in shown.getvalue()
    assert "12.3 k" in shown.getvalue()
    write_json(report, tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["series"] == rows
