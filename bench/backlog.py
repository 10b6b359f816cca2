"""The preset that shows whether a backlog costs anything: the same work with few and with very many items waiting."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.contestants import Querator, database
from bench.environment import describe
from bench.figures import Spread, ratios
from bench.generator import Timing, generate
from bench.proc import memory
from bench.report import Claim, Report, short
from bench.rounds import Case, Outcome, Round
from bench.server_process import Control, ServerProcess
from bench.suite import Setting

_QUEUE = "backlog"
_FILL = Case(workload="produce", batch=1000, clients=8)
_FOREVER_S = 86_400.0  # a fill ends when it is full
_MB = 1_000_000


@dataclass(kw_only=True)
class _Site:
    """One server with one standing backlog."""

    size: int
    server: ServerProcess
    contestant: Querator
    control: Control
    empty_bytes: int
    full_bytes: int = 0
    open_seconds: float = 0.0

    def restart_killed(self) -> None:
        """Kill the server and measure how long it is until a client holds an item again."""
        self.control.close()
        self.server.kill()
        began = time.monotonic()
        self.server.start()
        control = Control(self.server.address)
        control.drain(_QUEUE, 1)
        self.open_seconds = time.monotonic() - began
        control.close()


def run_backlog(setting: Setting, sizes: Sequence[int], case: Case) -> Report:
    """A server for each size, with a data folder of its own, measured in turn. The last is held to the first."""
    with ExitStack() as stack:
        sites = [_open_site(setting, stack, size) for size in sizes]
        for site in sites:
            _fill(setting, site, case.partitions)
        outcomes = _compete(setting, sites, case)
        for site in sites:
            setting.on_round(f"kill -9 with {short(site.size)} items waiting, and open again")
            site.restart_killed()
    return Report(
        preset="backlog",
        environment=describe(setting.folder),
        outcomes=outcomes,
        claims=_claims(outcomes, sites),
        notes=[_memory_note(site) for site in sites],
    )


def _open_site(setting: Setting, stack: ExitStack, size: int) -> _Site:
    below = stack.enter_context(database(setting.folder / f"database-{size}", setting.driver))
    server = ServerProcess(setting.folder / f"backlog-{size}", setting.driver, storage=below.options)
    server.start()
    stack.callback(server.stop)
    name = f"{short(size)} waiting"
    pid = server.process.pid
    return _Site(
        size=size,
        server=server,
        contestant=Querator(name, server.address, pid, database=below.pid),
        control=Control(server.address),
        empty_bytes=memory(pid).resident_bytes,
    )


def _fill(setting: Setting, site: _Site, partitions: int) -> None:
    setting.on_round(f"fill with {short(site.size)} items")
    site.control.create(_QUEUE, partitions)
    generate(site.contestant.loads(_FILL, _QUEUE, total=site.size), Timing(0.0, _FOREVER_S))
    waiting = site.control.waiting(_QUEUE)
    if waiting != site.size:
        raise RuntimeError(f"{site.size} items were put in, the server counts {waiting}")
    site.full_bytes = memory(site.server.process.pid).resident_bytes


def _compete(setting: Setting, sites: list[_Site], case: Case) -> list[Outcome]:
    """Rounds in turn. A cycle takes old items from the head and puts new ones to the tail; the backlog stays."""
    outcomes = [Outcome(case, site.contestant.name, "querator", []) for site in sites]
    for number in range(setting.plan.rounds):
        for site, outcome in zip(sites, outcomes, strict=True):
            setting.on_round(f"{case}: {site.contestant.name}, round {number + 1}")
            outcome.rounds.append(site.contestant.run_on(site.control, _QUEUE, case, setting.plan.timing))
    return outcomes


def _claims(outcomes: list[Outcome], sites: list[_Site]) -> list[Claim]:
    few, many = outcomes[0], outcomes[-1]
    small, large = sites[0], sites[-1]
    claims = [
        Claim(
            text=f"{call}: p50 with {short(large.size)} ÷ with {short(small.size)} waiting",
            measured=ratios(_medians(many.rounds, call), _medians(few.rounds, call)),
            wanted=1.25,
            at_least=False,
        )
        for call in ("produce", "reserve", "complete")
    ]
    grown = (_peak(many.rounds, large.full_bytes) - _peak(few.rounds, small.full_bytes)) / _MB
    opened = large.open_seconds
    return [
        *claims,
        Claim(text="memory that the backlog adds", measured=_single(grown), wanted=100, at_least=False, unit="MB"),
        Claim(
            text="start after kill -9 to the first completed item",
            measured=_single(opened),
            wanted=5,
            at_least=False,
            unit="s",
        ),
    ]


def _medians(rounds: list[Round], call: str) -> list[float]:
    return [one.calls[call].p50 for one in rounds]


def _peak(rounds: list[Round], full_bytes: int) -> int:
    return max(full_bytes, *[one.memory_bytes for one in rounds])


def _single(value: float) -> Spread:
    return Spread(value, value, value)


def _memory_note(site: _Site) -> str:
    return (
        f"{site.contestant.name}: server {site.empty_bytes / _MB:.0f} MB empty, {site.full_bytes / _MB:.0f} MB filled; "
        f"{site.open_seconds:.2f} s from start after kill -9 to the first completed item"
    )
