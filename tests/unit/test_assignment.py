"""Which instance owns what, as a pure function of who is there."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cluster.assignment import NOBODY, Assignment, Candidates, Load, assign, move_one

INSTANCES = ("a", "b", "c", "d")

reach = st.frozensets(st.sampled_from(INSTANCES))
candidates_of = st.dictionaries(st.integers(0, 15), reach, min_size=1)
histories = st.lists(st.tuples(candidates_of, st.integers(1, 8)), min_size=1, max_size=5)


def everywhere(count: int, instances: str) -> Candidates:
    return dict.fromkeys(range(count), frozenset(instances))


def changed(before: Assignment, after: Assignment) -> int:
    """How many logical queues are opened anew."""
    return len(set(after.logical_queues) - set(before.logical_queues))


def sizes(assignment: Assignment) -> list[int]:
    return sorted(len(place.partitions) for place in assignment.logical_queues)


def owned(assignment: Assignment) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for place in assignment.logical_queues:
        counts[place.instance] += len(place.partitions)
    return dict(counts)


@given(histories)
def test_every_partition_has_one_owner_that_can_have_it(history: list[tuple[Candidates, int]]) -> None:
    """Whatever came before, each partition is in exactly one logical queue, whose instance is a candidate for it."""
    assignment = Assignment()
    for candidates, wanted in history:
        assignment = assign(assignment, candidates, wanted, Load())
        named = [partition for place in assignment.logical_queues for partition in place.partitions]
        assert sorted(named) == sorted(candidates)
        assert len({place.number for place in assignment.logical_queues}) == len(assignment.logical_queues)
        for place in assignment.logical_queues:
            for partition in place.partitions:
                if candidates[partition]:
                    assert place.instance in candidates[partition]
                else:
                    assert place.instance == NOBODY


@given(histories)
def test_an_owner_has_an_epoch_that_no_earlier_owner_of_the_partition_had(
    history: list[tuple[Candidates, int]],
) -> None:
    """A logical queue that changes in any way is opened under a higher epoch than its partitions ever had."""
    assignment = Assignment()
    highest: dict[int, int] = {}
    for candidates, wanted in history:
        before = assignment
        assignment = assign(before, candidates, wanted, Load())
        for place in assignment.logical_queues:
            assert place.epoch <= assignment.epoch
            for partition in place.partitions:
                if place not in before.logical_queues:
                    assert place.epoch > highest.get(partition, 0)
                highest[partition] = place.epoch


@given(histories)
def test_nothing_changes_if_nothing_has_to(history: list[tuple[Candidates, int]]) -> None:
    """The same question twice has the same answer, with the same epochs."""
    assignment = Assignment()
    for candidates, wanted in history:
        assignment = assign(assignment, candidates, wanted, Load())
        assert assign(assignment, candidates, wanted, Load()) == assignment


@given(histories)
def test_the_load_is_what_is_assigned(history: list[tuple[Candidates, int]]) -> None:
    """What `assign` adds to the load is what its answer says."""
    assignment = Assignment()
    for candidates, wanted in history:
        load = Load()
        assignment = assign(assignment, candidates, wanted, load)
        assert {name: load.of(name) for name in owned(assignment)} == owned(assignment)


def test_logical_queues_are_spread_over_the_instances() -> None:
    """Twelve partitions in three logical queues on three instances: four each."""
    assignment = assign(Assignment(), everywhere(12, "abc"), 3, Load())
    assert owned(assignment) == {"a": 4, "b": 4, "c": 4}


def test_one_logical_queue_has_all_partitions() -> None:
    """Who wants one logical queue gets one, on the instance that owns the least."""
    load = Load()
    load.put("a", 5)
    assignment = assign(Assignment(), everywhere(100, "ab"), 1, load)
    assert [(place.instance, len(place.partitions)) for place in assignment.logical_queues] == [("b", 100)]


def test_only_what_a_lost_instance_owned_moves() -> None:
    """When one of three instances goes, the logical queues of the other two stay as they are."""
    before = assign(Assignment(), everywhere(12, "abc"), 3, Load())
    after = assign(before, everywhere(12, "ab"), 3, Load())
    assert changed(before, after) == 1
    assert set(owned(after)) == {"a", "b"}


def test_more_logical_queues_come_from_the_largest_ones() -> None:
    """Growing from one to four splits evenly, and shrinking again leaves one."""
    one = assign(Assignment(), everywhere(8, "ab"), 1, Load())
    four = assign(one, everywhere(8, "ab"), 4, Load())
    assert sizes(four) == [2, 2, 2, 2]
    assert sizes(assign(four, everywhere(8, "ab"), 1, Load())) == [8]


def test_partitions_of_a_host_stay_with_its_instances() -> None:
    """Where no instance reaches everything, there are as many logical queues as it takes."""
    candidates = {0: frozenset("a"), 1: frozenset("a"), 2: frozenset("b"), 3: frozenset("ab")}
    assignment = assign(Assignment(), candidates, 1, Load())
    owners = {partition: place.instance for place in assignment.logical_queues for partition in place.partitions}
    assert owners[0] == owners[1] == "a"
    assert owners[2] == "b"
    assert len(assignment.logical_queues) == 2


def test_one_move_at_a_time_evens_out_the_load() -> None:
    """An instance that joins gets logical queues one by one, until no move makes the load more even."""
    queues = [assign(Assignment(), everywhere(1, "a"), 1, Load()) for _ in range(10)]
    load = Load(queues)
    moves = 0
    while True:
        for index, queue in enumerate(queues):
            moved = move_one(queue, everywhere(1, "ab"), load)
            if moved != queue:
                queues[index] = moved
                moves += 1
                break
        else:
            break
    assert moves == 5
    assert (load.of("a"), load.of("b")) == (5, 5)
