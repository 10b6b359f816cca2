"""Sets of slots as integers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from querator import bits

SLOTS = st.sets(st.integers(0, 4095), max_size=200)


def mask_of(slots: set[int]) -> int:
    return sum(1 << slot for slot in slots)


@settings(deadline=None)
@given(st.integers(0, 4096), st.integers(0, 4096))
def test_a_span_holds_its_start_and_not_its_stop(one: int, other: int) -> None:
    """A span is the slots from start up to but without stop."""
    start, stop = sorted((one, other))
    assert bits.span(start, stop) == mask_of(set(range(start, stop)))


@settings(deadline=None)
@given(SLOTS.filter(bool))
def test_a_union_is_the_set_of_its_slots(slots: set[int]) -> None:
    """Neighbouring or scattered, the union holds every slot and no other."""
    assert bits.union(slots) == mask_of(slots)


@settings(deadline=None)
@given(SLOTS, st.integers(0, 300))
def test_runs_are_the_lowest_slots_as_neighbours(slots: set[int], limit: int) -> None:
    """Runs are maximal, in order, and hold exactly the lowest ``limit`` slots."""
    runs = list(bits.runs(mask_of(slots), limit))
    assert [slot for start, stop in runs for slot in range(start, stop)] == sorted(slots)[:limit]
    assert all(before[1] < after[0] for before, after in pairwise(runs))
    assert all(start < stop for start, stop in runs)


@settings(deadline=None)
@given(SLOTS)
def test_slots_and_bytes_give_the_set_back(slots: set[int]) -> None:
    """Neither the listing nor the stored form loses a slot."""
    mask = mask_of(slots)
    assert list(bits.slots(mask)) == sorted(slots)
    assert bits.from_bytes(bits.to_bytes(mask)) == mask
