"""The benchmark's statistics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figures import percentile, percentiles, ratios, spread


def test_percentiles_are_nearest_ranks() -> None:
    """A percentile is the smallest value that so many of the values do not exceed."""
    found = percentiles([float(value) for value in range(1000, 0, -1)])
    assert (found.calls, found.p50, found.p99, found.p999, found.highest) == (1000, 500.0, 990.0, 999.0, 1000.0)


def test_one_value_is_all_percentiles() -> None:
    """With one latency, every percentile is that latency."""
    assert set(percentiles([7.0])[1:]) == {7.0}


@given(values=st.lists(st.floats(0, 1e6), min_size=1), part=st.floats(0.001, 1))
def test_a_percentile_covers_its_part(values: list[float], part: float) -> None:
    """At least the asked part of the values is not larger than the percentile, and the percentile is one of them."""
    found = percentile(sorted(values), part)
    assert found in values
    assert sum(value <= found for value in values) >= part * len(values) - 1e-3


def test_percentiles_refuse_what_makes_no_sense() -> None:
    """No values, and parts outside of 0 to 1, are errors and not some number."""
    with pytest.raises(ValueError, match="no values"):
        percentiles([])
    with pytest.raises(ValueError, match="not a part"):
        percentile([1.0], 50)
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_spread_tells_the_farthest_round() -> None:
    """The relative spread is the distance of the farthest round from the median, as a part of it."""
    found = spread([90.0, 100.0, 130.0])
    assert (found.median, found.low, found.high) == (100.0, 90.0, 130.0)
    assert found.relative == pytest.approx(0.3)


def test_ratios_pair_neighbouring_rounds() -> None:
    """Noise that hits a pair of rounds alike does not show in the ratio."""
    assert ratios([200.0, 20.0, 2.0], [100.0, 10.0, 1.0]) == (2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="cannot be paired"):
        ratios([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="no baseline"):
        ratios([1.0], [0.0])
