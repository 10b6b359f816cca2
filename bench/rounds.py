"""A round's result, the cases that are measured, and running contestants against each other, round by round."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bench.figures import Percentiles, Spread, percentiles, spread
from bench.generator import Timing
from bench.measure import Measurement
from bench.proc import CpuTime


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is asked of every contestant alike."""

    workload: str = "cycle"  # "cycle", "produce" or "open"
    batch: int = 100
    clients: int = 8
    partitions: int = 1  # of a Querator queue; others have no such thing
    processes: int = 1  # that generate the load
    rate: float = 0.0  # open: cycles per second
    numbered: bool = False  # check that each single item arrives, instead of counting them

    def __str__(self) -> str:
        words = [self.workload, f"batch {self.batch}", f"{self.clients} clients"]
        if self.partitions != 1:
            words.append(f"{self.partitions} partitions")
        if self.rate:
            words.append(f"{self.rate:g}/s")
        return ", ".join(words)


@dataclass(frozen=True, kw_only=True)
class Round:
    """One contestant's result in one round of one case."""

    seconds: float
    items: int  # that went through in the measured part: completed, or produced if that is all the workload does
    produced: int
    completed: int
    retries: int
    cpu: Mapping[str, CpuTime]  # seconds, by who used them
    calls: Mapping[str, Percentiles]  # latencies in seconds, by call
    memory_bytes: int = 0  # of the server, at the end

    @property
    def rate(self) -> float:
        return self.items / self.seconds


class Contestant(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str:
        """One of "querator", "limit" and "peer"."""

    def takes(self, case: Case) -> bool:
        """Whether this case can be measured on it at all."""

    def run(self, case: Case, timing: Timing) -> Round:
        """One round on fresh ground. Raises if an item was lost or came twice."""


class ItemsLost(Exception):
    """What came out is not what went in."""


class TooShort(Exception):
    """Nothing went through in the measured part of a round."""


def merge(measurements: Sequence[Measurement], *, produce_only: bool, memory_bytes: int = 0) -> Round:
    """One round out of what its generator processes saw."""
    inside = [m.produced_inside if produce_only else m.completed_inside for m in measurements]
    if not sum(inside):
        raise TooShort(f"no item went through in {measurements[0].seconds:.1f} s; take a longer --duration")
    return Round(
        seconds=sum(m.seconds for m in measurements) / len(measurements),
        items=sum(inside),
        produced=sum(m.produced for m in measurements),
        completed=sum(m.completed for m in measurements),
        retries=sum(m.retries for m in measurements),
        cpu=_merge_cpu(measurements),
        calls=_merge_calls(measurements),
        memory_bytes=memory_bytes,
    )


def _merge_cpu(measurements: Sequence[Measurement]) -> dict[str, CpuTime]:
    """Each generator measures itself; whom they watch, the first measures for all."""
    cpu = dict(measurements[0].cpu)
    for measurement in measurements[1:]:
        own = measurement.cpu["generator"]
        so_far = cpu["generator"]
        cpu["generator"] = CpuTime(so_far.main + own.main, so_far.other + own.other)
    return cpu


def _merge_calls(measurements: Sequence[Measurement]) -> dict[str, Percentiles]:
    merged: dict[str, array[float]] = {}
    for measurement in measurements:
        for call, values in measurement.latencies.items():
            merged.setdefault(call, array("d")).extend(values)
    return {call: percentiles(values) for call, values in merged.items() if values}


class Outcome(NamedTuple):
    """All rounds of one contestant in one case."""

    case: Case
    contestant: str
    role: str
    rounds: list[Round]

    @property
    def rates(self) -> list[float]:
        return [one.rate for one in self.rounds]

    @property
    def rate(self) -> Spread:
        return spread(self.rates)

    def cpu_us_per_item(self, who: str) -> CpuTime | None:
        """Summed over all rounds, since one round's ticks are coarse."""
        if any(who not in one.cpu for one in self.rounds):
            return None
        items = max(1, sum(one.items for one in self.rounds))
        parts = [one.cpu[who] for one in self.rounds]
        return CpuTime(sum(part.main for part in parts) * 1e6 / items, sum(part.other for part in parts) * 1e6 / items)

    def busy(self, who: str) -> CpuTime | None:
        """How much of one core each used, on average."""
        if any(who not in one.cpu for one in self.rounds):
            return None
        seconds = sum(one.seconds for one in self.rounds)
        parts = [one.cpu[who] for one in self.rounds]
        return CpuTime(sum(part.main for part in parts) / seconds, sum(part.other for part in parts) / seconds)

    def call(self, name: str) -> Percentiles | None:
        """The median over the rounds of each percentile of a call's latency."""
        found = [one.calls[name] for one in self.rounds if name in one.calls]
        if not found:
            return None
        return Percentiles(
            sum(one.calls for one in found), *[spread(values).median for values in list(zip(*found, strict=True))[1:]]
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many rounds, and how long."""

    rounds: int = 5
    timing: Timing = field(default_factory=lambda: Timing(1.0, 4.0))


OnRound = Callable[[str], None]


def compete(case: Case, contestants: Iterable[Contestant], plan: Plan, on_round: OnRound) -> list[Outcome]:
    """Rounds in turn: everybody's first, everybody's second, and so on.

    A machine that is slow for a while is then slow for all of them.
    """
    entered = [one for one in contestants if one.takes(case)]
    outcomes = {one.name: Outcome(case, one.name, one.role, []) for one in entered}
    for number in range(plan.rounds):
        for one in entered:
            on_round(f"{case}: {one.name}, round {number + 1}")
            outcomes[one.name].rounds.append(one.run(case, plan.timing))
    return list(outcomes.values())
