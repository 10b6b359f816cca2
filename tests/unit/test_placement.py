"""How new partitions are spread over the backends."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cluster.placement import spread
from querator.errors import RequestFailed


def test_partitions_are_spread_in_proportion_to_affinity() -> None:
    """Eight partitions over 1.0, 0.5 and 0.5 are four, two and two."""
    assert Counter(spread(8, {"a": 1.0, "b": 0.5, "c": 0.5})) == {"a": 4, "b": 2, "c": 2}


def test_an_affinity_of_zero_takes_none() -> None:
    """Neither in proportion nor as a remainder."""
    assert set(spread(7, {"a": 1.0, "b": 0.0, "c": 0.3})) == {"a", "c"}
    with pytest.raises(RequestFailed):
        spread(1, {"a": 0.0, "b": 0.0})
    with pytest.raises(RequestFailed):
        spread(1, {})


def test_neighbours_lie_on_different_backends() -> None:
    """With equal affinities the backends take turns."""
    places = spread(6, {"a": 1.0, "b": 1.0, "c": 1.0})
    assert all(one != other for one, other in pairwise(places))


@settings(deadline=None)
@given(st.integers(1, 200), st.dictionaries(st.text(max_size=3), st.floats(0.0, 1.0), min_size=1, max_size=6))
def test_the_parts_add_up_and_none_is_off_by_one(count: int, affinities: dict[str, float]) -> None:
    """Largest remainder: everything is placed, and each backend gets its exact share rounded down or up."""
    total = sum(affinities.values())
    assume(total > 1e-6)
    placed = Counter(spread(count, affinities))
    assert sum(placed.values()) == count
    for name, affinity in affinities.items():
        assert abs(placed[name] - count * affinity / total) < 1 + 1e-6
        assert affinity or not placed[name]
