"""How new partitions are spread over the backends."""

from __future__ import annotations

from collections.abc import Mapping

from querator.errors import RequestFailed


def spread(count: int, affinities: Mapping[str, float]) -> list[str]:
    """A backend for each of ``count`` partitions, in proportion to affinity, by largest remainder.

    Neighbouring partitions lie on different backends as far as the proportions allow.
    """
    total = sum(affinities.values())
    if total <= 0:
        raise RequestFailed("no backend takes partitions", "the affinity of every backend is 0.0")
    exact = {name: count * affinity / total for name, affinity in affinities.items()}
    counts = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: counts[name] - exact[name])
    for name in by_remainder[: count - sum(counts.values())]:
        counts[name] += 1
    positions = [((index + 0.5) / taken, name) for name, taken in counts.items() for index in range(taken)]
    return [name for _, name in sorted(positions, key=lambda position: position[0])]
