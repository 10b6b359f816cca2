"""A run's results, on the terminal and as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.contestants import DATABASE, SERVER
from bench.figures import Percentiles, Spread, ratios
from bench.measure import GENERATOR
from bench.proc import CpuTime
from bench.rounds import Outcome

# A thread that is on a core for this part of the time is what everybody else waits for.
_BOUND = 0.85


_LEGEND = (
    "[dim]µs: CPU time per item. server: main thread, in ours the event loop; + threads: its others, in ours the "
    "database's. database: all processes of a database server. ours ÷ this: the median of the quotients of neighbouring rounds. ±: the farthest round.[/dim]"
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A figure that a run was made to show, and what it should be."""

    text: str
    measured: Spread
    wanted: float
    at_least: bool = True  # or: at most
    unit: str = "×"

    @property
    def met(self) -> bool:
        return self.measured.median >= self.wanted if self.at_least else self.measured.median <= self.wanted


@dataclass(frozen=True, kw_only=True)
class Report:
    preset: str
    environment: Mapping[str, object]
    outcomes: Sequence[Outcome]
    claims: Sequence[Claim] = field(default_factory=tuple)
    notes: Sequence[str] = field(default_factory=tuple)
    series: Sequence[Mapping[str, object]] = field(default_factory=tuple)  # what was seen over time, a row each
    made_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def file_name(self, suffix: str) -> str:
        return f"{self.made_at:%Y%m%d-%H%M%S}-{self.preset}.{suffix}"


def cases(outcomes: Iterable[Outcome]) -> list[list[Outcome]]:
    """Those of one case together, in the order in which they ran."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(str(outcome.case), []).append(outcome)
    return list(groups.values())


def short(number: float) -> str:
    """Three digits that matter: 1.23, 12.3, 123, 1.23 k, 12.3 k, 1.23 M."""
    for size, suffix in ((1e6, " M"), (1e3, " k")):
        if abs(number) >= size:
            return f"{_three(number / size)}{suffix}"
    return _three(number)


def _three(number: float) -> str:
    digits = 2 if abs(number) < 10 else 1 if abs(number) < 100 else 0
    return f"{number:.{digits}f}"


def show(console: Console, report: Report) -> None:
    console.print("  ".join(f"[dim]{name}[/dim] {value}" for name, value in report.environment.items()))
    for group in cases(report.outcomes):
        console.print(_rates(group))
        console.print(_latencies(group))
    if report.series:
        console.print(_series(report.series))
    if report.claims:
        console.print(_claims(report.claims))
    for note in (*report.notes, _LEGEND):
        console.print(note)


def _rates(group: Sequence[Outcome]) -> Table:
    table = Table(title=str(group[0].case), title_justify="left", title_style="bold")
    table.add_column("contestant")
    for header in ("items/s", "±", "ours ÷ this", "server µs", "+ threads", "database µs", "generator µs"):
        table.add_column(header, justify="right")
    table.add_column("bound by")
    ours = next((outcome for outcome in group if outcome.role == "querator"), None)
    for outcome in group:
        server, generator = outcome.cpu_us_per_item(SERVER), outcome.cpu_us_per_item(GENERATOR)
        database = outcome.cpu_us_per_item(DATABASE)
        table.add_row(
            f"{outcome.contestant} [dim]{outcome.role}[/dim]" if outcome.role != "querator" else outcome.contestant,
            short(outcome.rate.median),
            f"{outcome.rate.relative:.0%}",
            _quotient(ours, outcome),
            short(server.main) if server else "",
            short(server.other) if server else "",
            short(database.total) if database else "",
            short(generator.total) if generator else "",
            bound(outcome),
        )
    return table


def _quotient(ours: Outcome | None, outcome: Outcome) -> str:
    """Only of those whose rounds ran in turn; the phases of one long run have no pairs."""
    if ours is None or outcome is ours or len(ours.rates) != len(outcome.rates):
        return ""
    return f"{ratios(ours.rates, outcome.rates).median:.2f}"


def bound(outcome: Outcome) -> str:
    """What holds this contestant back, as far as CPU times tell."""
    nothing = CpuTime(0.0, 0.0)
    server, generator = outcome.busy(SERVER), outcome.busy(GENERATOR) or nothing
    database = outcome.busy(DATABASE) or nothing
    if outcome.role == "limit" and not database.total:
        return "CPU" if generator.total >= _BOUND else f"disk, {1 - generator.total:.0%} waiting"
    if generator.main >= _BOUND:
        return f"generator, {generator.main:.0%} busy"
    if server is None and not database.total:
        return f"generator only {generator.total:.0%} busy"
    server = server or nothing
    if server.main >= _BOUND and outcome.role == "querator":
        return f"server loop, {server.main:.0%} busy"
    used = (server.total + database.total + generator.total) / (os.cpu_count() or 1)
    if used >= _BOUND:
        return f"all cores, {used:.0%} busy"
    return f"waiting: cores {used:.0%}" + (f", server loop {server.main:.0%} busy" if server.total else "")


def _latencies(group: Sequence[Outcome]) -> Table:
    table = Table(title_justify="left")
    table.add_column("latency, ms")
    table.add_column("call")
    for header in ("calls", "p50", "p99", "p99.9", "highest"):
        table.add_column(header, justify="right")
    for outcome in group:
        for call in outcome.rounds[0].calls:
            found = outcome.call(call)
            if found is not None:
                table.add_row(outcome.contestant, call, str(found.calls), *_milliseconds(found))
    return table


def _milliseconds(found: Percentiles) -> list[str]:
    return [_three(value * 1000) for value in (found.p50, found.p99, found.p999, found.highest)]


def _series(rows: Sequence[Mapping[str, object]]) -> Table:
    table = Table(title="over time", title_justify="left", title_style="bold")
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*[short(value) if isinstance(value, float) else str(value) for value in row.values()])
    return table


def _claims(claims: Sequence[Claim]) -> Table:
    table = Table(title="asked for", title_justify="left", title_style="bold")
    table.add_column("figure")
    for header in ("measured", "lowest", "highest", "wanted"):
        table.add_column(header, justify="right")
    table.add_column("")
    for claim in claims:
        table.add_row(
            claim.text,
            f"{_three(claim.measured.median)} {claim.unit}",
            _three(claim.measured.low),
            _three(claim.measured.high),
            f"{'≥' if claim.at_least else '≤'} {claim.wanted:g} {claim.unit}",
            "[green]met[/green]" if claim.met else "[red]not met[/red]",
        )
    return table


def write_json(report: Report, path: Path) -> None:
    content = {
        "preset": report.preset,
        "made_at": report.made_at.isoformat(),
        "environment": dict(report.environment),
        "outcomes": [_outcome_fields(outcome) for outcome in report.outcomes],
        "claims": [
            {**asdict(claim), "measured": claim.measured._asdict(), "met": claim.met} for claim in report.claims
        ],
        "notes": list(report.notes),
        "series": [dict(row) for row in report.series],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def _outcome_fields(outcome: Outcome) -> dict[str, object]:
    return {
        "case": asdict(outcome.case),
        "contestant": outcome.contestant,
        "role": outcome.role,
        "items_per_second": outcome.rate._asdict(),
        "bound_by": bound(outcome),
        "rounds": [
            {
                "seconds": one.seconds,
                "items": one.items,
                "produced": one.produced,
                "completed": one.completed,
                "retries": one.retries,
                "memory_bytes": one.memory_bytes,
                "cpu_seconds": {who: cpu._asdict() for who, cpu in one.cpu.items()},
                "latency_seconds": {call: found._asdict() for call, found in one.calls.items()},
            }
            for one in outcome.rounds
        ],
    }
