"""The presets: the suite that holds us to the bare loop and the peers, latency over load, and a free choice of cases."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.contestants import ROWS, OnMissing, limits, peers, served, without_parts
from bench.environment import describe
from bench.figures import ratios
from bench.report import Claim, Report
from bench.rounds import Case, Contestant, OnRound, Outcome, Plan, compete

BATCH_100 = Case(batch=100, clients=8)
BATCH_1000 = Case(batch=1000, clients=8)
SINGLE = Case(batch=1, clients=64)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all presets need to know."""

    folder: Path
    plan: Plan
    on_round: OnRound
    on_missing: OnMissing
    driver: str = "sqlite"
    url: str | None = None
    with_peers: bool = True
    with_limits: bool = True


def run_suite(setting: Setting) -> Report:
    """Full cycles beside the bare loops and the peers, in one run."""
    outcomes = _run(setting, (BATCH_100, BATCH_1000, SINGLE))
    found = {
        (outcome.case, outcome.contestant if outcome.role != "querator" else "querator"): outcome
        for outcome in outcomes
    }
    asked = [
        (BATCH_100, ROWS, 1.0),
        (BATCH_1000, ROWS, 1.0),
        (SINGLE, ROWS, 7.0),
        (BATCH_100, "postgres", 3.0),
        (BATCH_100, "beanstalkd", 3.0),
    ]
    claims = [
        Claim(
            text=f"{case}: querator ÷ {other}",
            measured=ratios(found[case, "querator"].rates, found[case, other].rates),
            wanted=wanted,
        )
        for case, other, wanted in asked
        if (case, other) in found
    ]
    environment = describe(setting.folder)
    if setting.url is not None:
        note = f"[yellow]nothing is claimed: how durable the server at {setting.url} is, and on what disk, is unknown"
        return Report(preset="suite", environment=environment, outcomes=outcomes, notes=[note])
    return Report(preset="suite", environment=environment, outcomes=outcomes, claims=claims)


def run_cases(setting: Setting, cases: Sequence[Case]) -> Report:
    return Report(preset="cases", environment=describe(setting.folder), outcomes=_run(setting, cases))


def run_parts(setting: Setting) -> Report:
    """The same server without one of its parts: what each of them brings."""
    outcomes: list[Outcome] = []
    with (
        served(setting.folder, setting.driver, setting.url) as server,
        without_parts(setting.folder, setting.driver) as others,
    ):
        for case in (BATCH_100, BATCH_1000, SINGLE):
            outcomes += compete(case, [server, *others], setting.plan, setting.on_round)
    return Report(preset="parts", environment=describe(setting.folder), outcomes=outcomes)


def run_latency(setting: Setting, rates: Sequence[float], batch: int, clients: int) -> Report:
    """Open loop at several rates: how long a call takes from when it should have started."""
    cases = [Case(workload="open", batch=batch, clients=clients, rate=rate) for rate in rates]
    outcomes = []
    with served(setting.folder, setting.driver, setting.url) as server:
        for case in cases:
            outcomes += compete(case, [server], setting.plan, setting.on_round)
    notes = ["[dim]start: how late the generator itself was; it is part of the other two[/dim]"]
    return Report(preset="latency", environment=describe(setting.folder), outcomes=outcomes, notes=notes)


def _run(setting: Setting, cases: Sequence[Case]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        server = stack.enter_context(served(setting.folder, setting.driver, setting.url))
        others: list[Contestant] = []
        if setting.with_limits:
            others += limits(setting.folder)
        if setting.with_peers:
            others += stack.enter_context(peers(setting.folder, setting.on_missing))
        for case in cases:
            outcomes += compete(case, [server, *others], setting.plan, setting.on_round)
    return outcomes
