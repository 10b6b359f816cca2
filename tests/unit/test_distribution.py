"""Which partition takes a produce, and who gets how much."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from querator.distribution import Room, emptiest_first, share


def shared(wanted: list[int], available: list[int]) -> list[tuple[int, int]]:
    return list(share(wanted, len(wanted), [Room(0, count) for count in available]))


def test_what_is_ready_is_shared_evenly() -> None:
    """Each of those that wait gets the same, as far as it can be divided."""
    assert [count for _, count in shared([10, 10, 10], [7])] == [3, 2, 2]
    assert [count for _, count in shared([10, 10, 10], [2])] == [1, 1]
    assert [count for _, count in shared([1, 10], [10])] == [1, 9]


def test_the_fullest_partition_gives_first() -> None:
    """Reserves go where most is ready, one partition each."""
    assert shared([2, 2], [1, 9]) == [(1, 2), (1, 2)]
    assert shared([4, 4], [4, 4]) == [(0, 4), (1, 4)]
    assert shared([5], []) == []
    assert shared([], [5]) == []


@settings(deadline=None)
@given(st.lists(st.integers(1, 20), max_size=20), st.lists(st.integers(0, 30), max_size=6))
def test_nobody_gets_more_than_wanted_and_no_item_twice(wanted: list[int], available: list[int]) -> None:
    """Each gets between one item and what it wants, and no partition gives more than it has."""
    given_to = shared(wanted, available)
    left = list(available)
    for (index, count), want in zip(given_to, wanted, strict=False):
        assert 1 <= count <= want
        left[index] -= count
    assert min(left, default=0) >= 0
    assert len(given_to) == len(wanted) or not any(left)


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), max_size=60), st.lists(st.integers(0, 20), min_size=1, max_size=6))
def test_produces_go_to_the_emptiest_partition(counts: list[int], loads: list[int]) -> None:
    """Each time the one with the lowest load is chosen, counting what this turn already gave it."""
    rooms = [Room(load, 0) for load in loads]
    choosing = emptiest_first(rooms, 10**9, 10**9)
    for count in counts:
        index = next(choosing)
        assert rooms[index].load == min(room.load for room in rooms)
        rooms[index].load += count
        rooms[index].items += count


def test_a_full_partition_takes_no_more_in_this_turn() -> None:
    """A batch is bounded in items and in bytes; when all are full the rest waits."""
    rooms = [Room(0, 0), Room(100, 0)]
    chosen = []
    for index in emptiest_first(rooms, max_items=2, max_bytes=10):
        chosen.append(index)
        rooms[index].items += 1
        rooms[index].size += 5 if index == 0 else 10
        rooms[index].load += 1
    assert chosen == [0, 0, 1]
