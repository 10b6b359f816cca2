"""The preset that holds Querator on PostgreSQL to SKIP LOCKED, to its own commit function, and to rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from bench.contestants import DATABASE, Database, Single, serve_on
from bench.environment import describe
from bench.figures import Spread, ratios
from bench.postgres_server import Postgres
from bench.report import Claim, Report
from bench.rounds import Case, Contestant, Outcome, compete
from bench.suite import Setting

PEER, COMMITS, ROWS = "postgres", "postgres commits", "postgres rows"
BATCHES = (100, 1000)
CLIENTS = 8


def run_postgres(setting: Setting, partitions: Sequence[int], connections: int) -> Report:
    """All on one PostgreSQL server, in turn. ``partitions`` are ours for each batch, ``connections`` the bare loops'."""
    cases = [
        Case(batch=batch, clients=CLIENTS, partitions=count) for batch, count in zip(BATCHES, partitions, strict=True)
    ]
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        server = Postgres(setting.folder / "postgres")
        stack.callback(server.stop)
        server.start()
        pid = server.pid()
        below = Database({"dsn": server.address}, pid)
        contestants: list[Contestant] = [stack.enter_context(serve_on(below, setting.folder, "postgres"))]
        contestants.append(Single(PEER, "peer", server.address, database=pid))
        contestants += [
            Single(name, "limit", server.address, database=pid, clients=connections) for name in (COMMITS, ROWS)
        ]
        for case in cases:
            outcomes += compete(case, contestants, setting.plan, setting.on_round)
    return Report(
        preset="postgres",
        environment={**describe(setting.folder), "connections": connections},
        outcomes=outcomes,
        claims=_claims(cases, outcomes),
        notes=[
            f"[dim]the bare loops ({COMMITS}, {ROWS}) have {connections} connections, each with its own tables[/dim]"
        ],
    )


def _claims(cases: list[Case], outcomes: list[Outcome]) -> list[Claim]:
    claims = []
    for case in cases:
        ours, peer, commits, _ = _of(case, outcomes)
        claims.append(_rate_claim(case, ours, peer, 3.0))
        claims.append(_rate_claim(case, ours, commits, 0.6))
    ours, _, _, rows = _of(cases[-1], outcomes)
    claims.append(
        Claim(
            text=f"{cases[-1]}: CPU of PostgreSQL per item, querator ÷ {ROWS}",
            measured=database_cpu_ratio(ours, rows),
            wanted=0.333,
            at_least=False,
        )
    )
    return claims


def _of(case: Case, outcomes: list[Outcome]) -> list[Outcome]:
    """Those of one case, in the order of the contestants."""
    return [outcome for outcome in outcomes if outcome.case == case]


def _rate_claim(case: Case, ours: Outcome, other: Outcome, wanted: float) -> Claim:
    return Claim(text=f"{case}: querator ÷ {other.contestant}", measured=ratios(ours.rates, other.rates), wanted=wanted)


def database_cpu_ratio(ours: Outcome, other: Outcome) -> Spread:
    """Of the CPU time that the database takes per item, round by round."""
    return ratios(_database_cpu(ours), _database_cpu(other))


def _database_cpu(outcome: Outcome) -> list[float]:
    return [one.cpu[DATABASE].total / one.items for one in outcome.rounds]
