"""Statistics over rounds and over latencies. No I/O."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """The middle of some rounds, and how far they went from it."""

    median: float
    low: float
    high: float

    @property
    def relative(self) -> float:
        """The larger distance from the median, as a part of it: 0.05 means within 5 %."""
        if self.median == 0:
            return 0.0
        return max(self.high - self.median, self.median - self.low) / abs(self.median)


class Percentiles(NamedTuple):
    """Of latencies, in the unit that went in."""

    calls: int
    p50: float
    p99: float
    p999: float
    highest: float


def spread(values: Sequence[float]) -> Spread:
    if not values:
        raise ValueError("no values to take the median of")
    return Spread(statistics.median(values), min(values), max(values))


def ratios(values: Sequence[float], baselines: Sequence[float]) -> Spread:
    """The spread of the quotients of rounds that ran next to each other.

    Rounds are paired, since noise that lasts longer than a round hits both of a pair and so leaves the quotient alone.
    """
    if len(values) != len(baselines):
        raise ValueError(f"{len(values)} rounds cannot be paired with {len(baselines)}")
    if not all(baselines):
        raise ValueError("a round in which nothing went through is no baseline")
    return spread([value / baseline for value, baseline in zip(values, baselines, strict=True)])


def percentile(ordered: Sequence[float], part: float) -> float:
    """The nearest-rank percentile of sorted values: the smallest that at least ``part`` of them do not exceed."""
    if not ordered:
        raise ValueError("no values to take a percentile of")
    if not 0 < part <= 1:
        raise ValueError(f"{part} is not a part between 0 and 1")
    # Rounded first, since 0.999 * 1000 is a hair more than 999 in floating point.
    return ordered[max(1, math.ceil(round(part * len(ordered), 6))) - 1]


def percentiles(values: Sequence[float]) -> Percentiles:
    ordered = sorted(values)
    return Percentiles(
        len(ordered),
        percentile(ordered, 0.50),
        percentile(ordered, 0.99),
        percentile(ordered, 0.999),
        ordered[-1],
    )
