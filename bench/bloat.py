"""The preset that shows what a snapshot that somebody holds open costs: rate and sizes before, during and after it.

While it is held, PostgreSQL may remove no row that was deleted since, so the tables grow with what goes through them,
whoever writes. What is asked is that the queue does not slow down meanwhile, and that the tables stop growing after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

import asyncpg

from bench.contestants import Querator, database
from bench.environment import describe
from bench.figures import Spread, spread
from bench.generator import Timing
from bench.report import Claim, Report
from bench.rounds import Case, Outcome
from bench.server_process import Control, ServerProcess
from bench.suite import Setting

BEFORE, HELD, AFTER = "before", "snapshot held", "released"
_QUEUE = "bloat"
_MB = 1_000_000
_SIZES = """
SELECT
    coalesce(sum(pg_total_relation_size(c.oid)) FILTER (WHERE c.relname LIKE 'block\\_%'), 0)::bigint AS blocks,
    coalesce(sum(pg_total_relation_size(c.oid)) FILTER (WHERE c.relname LIKE 'record\\_%'), 0)::bigint AS records,
    coalesce(sum(pg_total_relation_size(c.oid)) FILTER (WHERE c.relname = 'partition'), 0)::bigint AS partitions
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'querator' AND c.relkind = 'r'
"""
_FIRST_LOOK = "SELECT count(*) FROM pg_class"  # a transaction takes its snapshot with its first statement


class Observer:
    """Two connections of somebody else: one looks at sizes, one can hold a snapshot."""

    def __init__(self, dsn: str) -> None:
        self._runner = asyncio.Runner()
        self._looking: asyncpg.Connection = self._runner.run(asyncpg.connect(dsn))
        self._holding: asyncpg.Connection = self._runner.run(asyncpg.connect(dsn))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._runner.run(self._looking.close())
        self._runner.run(self._holding.close())
        self._runner.close()

    def sizes(self) -> dict[str, float]:
        """Of the tables with their indexes, in MB."""
        row = self._runner.run(self._looking.fetchrow(_SIZES))
        return {f"{name}, MB": size / _MB for name, size in row.items()}

    def value(self, query: str) -> object:
        return self._runner.run(self._looking.fetchval(query))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self._runner.run(self._holding.execute("BEGIN ISOLATION LEVEL REPEATABLE READ"))
        self._runner.run(self._holding.fetchval(_FIRST_LOOK))
        try:
            yield
        finally:
            self._runner.run(self._holding.execute("ROLLBACK"))


class _Run:
    """One queue under load, window by window."""

    def __init__(
        self, setting: Setting, case: Case, observer: Observer, contestant: Querator, control: Control
    ) -> None:
        self._setting = setting
        self._case = case
        self._observer = observer
        self._contestant = contestant
        self._control = control
        self._passed_s = 0.0
        self.series: list[dict[str, object]] = []

    def phase(self, name: str, seconds: float, windows: int) -> Outcome:
        outcome = Outcome(self._case, name, "querator", [])
        timing = Timing(0.0, seconds / windows)
        for number in range(windows):
            self._setting.on_round(f"{name}, part {number + 1} of {windows}")
            one = self._contestant.run_on(self._control, _QUEUE, self._case, timing)
            outcome.rounds.append(one)
            self._passed_s += one.seconds
            seen: dict[str, object] = {"s": round(self._passed_s), "phase": name, "items/s": one.rate}
            self.series.append(seen | self._observer.sizes())
        return outcome


def run_bloat(setting: Setting, seconds: float, windows: int, case: Case) -> Report:
    """The same load before a snapshot is held, for ``seconds`` while it is, and after its release."""
    with ExitStack() as stack:
        below = stack.enter_context(database(setting.folder / "postgres", "postgres"))
        server = ServerProcess(setting.folder / "bloat", "postgres", storage=below.options)
        stack.callback(server.stop)
        server.start()
        observer = stack.enter_context(Observer(str(below.options["dsn"])))
        control = Control(server.address)
        stack.callback(control.close)
        control.create(_QUEUE, case.partitions)
        contestant = Querator("querator", server.address, server.process.pid, database=below.pid)
        run = _Run(setting, case, observer, contestant, control)
        part = seconds / windows
        outcomes = [run.phase(BEFORE, part * 3, 3)]
        with observer.snapshot():
            outcomes.append(run.phase(HELD, seconds, windows))
        outcomes.append(run.phase(AFTER, part * windows, windows))
    return Report(
        preset="bloat",
        environment=describe(setting.folder),
        outcomes=outcomes,
        claims=_claims(outcomes, run.series),
        series=run.series,
    )


def _claims(outcomes: list[Outcome], series: list[dict[str, object]]) -> list[Claim]:
    held, after = outcomes[1].rates, outcomes[2].rates
    half = len(held) // 2
    return [
        Claim(
            text="rate in the second half of the snapshot ÷ in its first",
            measured=_over(held[half:], spread(held[:half] or held).median),
            wanted=0.8,
        ),
        Claim(
            text="rate after its release ÷ while it was held",
            measured=_over(after, spread(held).median),
            wanted=0.8,
        ),
        Claim(
            text="size at the end ÷ at the release",
            measured=_single(_size(series[-1]) / _size(series[-len(after) - 1])),
            wanted=1.1,
            at_least=False,
        ),
    ]


def _over(values: list[float], baseline: float) -> Spread:
    return spread([value / baseline for value in values])


def _size(seen: dict[str, object]) -> float:
    return sum(value for name, value in seen.items() if name.endswith(", MB") and isinstance(value, float))


def _single(value: float) -> Spread:
    return Spread(value, value, value)
