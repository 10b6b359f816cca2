"""Which instance owns what: pure functions, so that they can be tested without a cluster.

A queue's partitions are grouped into logical queues, and each logical queue is given to one instance that can reach all
of its partitions. What is there stays as it is as far as that is possible: a logical queue whose instance or partitions
change is closed and opened again, under the next epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

NOBODY = ""  # the instance of a logical queue that none can own now

Candidates = Mapping[int, frozenset[str]]  # partition → the instances that may own it


class LogicalQueuePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A logical queue, as it is given to an instance."""

    number: int  # within its queue
    instance: str
    epoch: int  # under which the instance opens the partitions
    partitions: tuple[int, ...]  # in order


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """Who owns the partitions of one queue."""

    epoch: int = 0  # the highest that was ever given
    logical_queues: tuple[LogicalQueuePlace, ...] = ()

    def owned_by(self, instance: str) -> list[LogicalQueuePlace]:
        return [place for place in self.logical_queues if place.instance == instance]

    def owner_of(self, partition: int) -> LogicalQueuePlace | None:
        return next((place for place in self.logical_queues if partition in place.partitions), None)


class Load:
    """How many partitions each instance owns, over all queues."""

    def __init__(self, assignments: Iterable[Assignment] = ()) -> None:
        self._partitions: Counter[str] = Counter()
        for assignment in assignments:
            self.add(assignment)

    def add(self, assignment: Assignment) -> None:
        for place in assignment.logical_queues:
            self._partitions[place.instance] += len(place.partitions)

    def take(self, assignment: Assignment) -> None:
        for place in assignment.logical_queues:
            self._partitions[place.instance] -= len(place.partitions)

    def put(self, instance: str, partitions: int) -> None:
        self._partitions[instance] += partitions

    def of(self, instance: str) -> int:
        return self._partitions[instance]

    def least(self, instances: Iterable[str]) -> str:
        """The one that owns the fewest; the order of names decides between equals."""
        return min(instances, key=lambda instance: (self._partitions[instance], instance), default=NOBODY)


class _Group:
    """A logical queue in the making."""

    def __init__(self, number: int, instance: str, partitions: Iterable[int]) -> None:
        self.number = number
        self.instance = instance
        self.partitions = sorted(partitions)

    def candidates(self, candidates: Candidates) -> frozenset[str]:
        """Who can own all of it."""
        return frozenset.intersection(*(candidates[partition] for partition in self.partitions))


def assign(present: Assignment, candidates: Candidates, wanted: int, load: Load) -> Assignment:
    """The next assignment of a queue: every partition has an owner that is a candidate for it, if there is any.

    ``wanted`` is the number of logical queues; it is kept between 1 and the number of partitions, and may be exceeded
    where no single instance reaches everything. ``load`` is without this queue, and is with it afterwards.
    """
    groups = _keep(present, candidates)
    _adopt(groups, candidates)
    for group in groups:
        load.put(group.instance, len(group.partitions))
    for group in groups:
        if group.instance not in group.candidates(candidates):
            _give(group, load.least(group.candidates(candidates)), load)
    wanted = max(1, min(wanted, len(candidates)))
    _split(groups, candidates, wanted, load)
    _merge(groups, candidates, wanted, load)
    _even_out(groups, candidates, load)
    return _number(present, groups)


def move_one(present: Assignment, candidates: Candidates, load: Load) -> Assignment:
    """Give one logical queue to an instance that owns less, if that evens out the load; else what is there."""
    for place in sorted(present.logical_queues, key=lambda place: -len(place.partitions)):
        group = _Group(place.number, place.instance, place.partitions)
        target = load.least(group.candidates(candidates))
        if target != NOBODY and load.of(place.instance) - load.of(target) > len(place.partitions):
            groups = [_Group(each.number, each.instance, each.partitions) for each in present.logical_queues]
            moved = next(each for each in groups if each.number == place.number)
            _give(moved, target, load)
            return _number(present, groups)
    return present


def _keep(present: Assignment, candidates: Candidates) -> list[_Group]:
    """What is left of the logical queues that are there; each reachable as a whole, if its parts are at all."""
    groups: list[_Group] = []
    for place in present.logical_queues:
        left = [partition for partition in place.partitions if partition in candidates]
        by_reach: dict[frozenset[str], list[int]] = {}
        if left and (frozenset.intersection(*(candidates[each] for each in left)) or len(left) == 1):
            by_reach = {frozenset(): left}
        else:
            for partition in left:
                by_reach.setdefault(candidates[partition], []).append(partition)
        for index, partitions in enumerate(by_reach.values()):
            number = place.number if index == 0 else _free_number(groups, present)
            groups.append(_Group(number, place.instance, partitions))
    return groups


def _adopt(groups: list[_Group], candidates: Candidates) -> None:
    """Give the partitions that are new to a logical queue that can have them, the smallest first."""
    known = {partition for group in groups for partition in group.partitions}
    for partition in sorted(candidates.keys() - known):
        can = [(group, group.candidates(candidates) & candidates[partition]) for group in groups]
        homes = [(group.instance not in both, len(group.partitions), group.number) for group, both in can if both]
        if homes:
            group = next(group for group in groups if group.number == min(homes)[2])
            group.partitions = sorted([*group.partitions, partition])
        else:
            groups.append(_Group(_free_number(groups), NOBODY, [partition]))


def _split(groups: list[_Group], candidates: Candidates, wanted: int, load: Load) -> None:
    while len(groups) < wanted:
        largest = max(groups, key=lambda group: (len(group.partitions), -group.number))
        middle = (len(largest.partitions) + 1) // 2
        part = _Group(_free_number(groups), largest.instance, largest.partitions[middle:])
        largest.partitions = largest.partitions[:middle]
        groups.append(part)
        _give(part, load.least(part.candidates(candidates)), load)


def _merge(groups: list[_Group], candidates: Candidates, wanted: int, load: Load) -> None:
    """Dissolve the smallest logical queues into others, on instances that can have their partitions."""
    while len(groups) > wanted:
        pairs = [
            (group, other)
            for group in groups
            for other in groups
            if other is not group and other.instance in group.candidates(candidates)
        ]
        if not pairs:
            return
        group, other = min(
            pairs, key=lambda pair: (len(pair[0].partitions), len(pair[1].partitions), -pair[0].number, pair[1].number)
        )
        groups.remove(group)
        other.partitions = sorted([*other.partitions, *group.partitions])
        load.put(group.instance, -len(group.partitions))
        load.put(other.instance, len(group.partitions))


def _even_out(groups: list[_Group], candidates: Candidates, load: Load) -> None:
    """Move single partitions from large logical queues to small ones, until no move makes them more even."""
    while True:
        moves = [
            (len(small.partitions) - len(large.partitions), large.number, small.number, partition)
            for large in groups
            for small in groups
            if len(large.partitions) - len(small.partitions) > 1
            for partition in large.partitions[-1:]
            if small.instance in candidates[partition]
        ]
        if not moves:
            return
        _, large_number, small_number, partition = min(moves)
        large = next(group for group in groups if group.number == large_number)
        small = next(group for group in groups if group.number == small_number)
        large.partitions.remove(partition)
        small.partitions = sorted([*small.partitions, partition])
        load.put(large.instance, -1)
        load.put(small.instance, 1)


def _give(group: _Group, instance: str, load: Load) -> None:
    load.put(group.instance, -len(group.partitions))
    group.instance = instance
    load.put(group.instance, len(group.partitions))


def _free_number(groups: list[_Group], present: Assignment | None = None) -> int:
    taken = {group.number for group in groups}
    if present is not None:
        taken.update(place.number for place in present.logical_queues)
    return next(number for number in range(len(taken) + 1) if number not in taken)


def _number(present: Assignment, groups: list[_Group]) -> Assignment:
    """Give what changed the next epoch; what did not keeps its own."""
    unchanged = {(place.number, place.instance, place.partitions): place for place in present.logical_queues}
    epoch = present.epoch + 1
    places = []
    for group in sorted(groups, key=lambda group: group.number):
        partitions = tuple(group.partitions)
        place = unchanged.get((group.number, group.instance, partitions))
        places.append(
            place or LogicalQueuePlace(number=group.number, instance=group.instance, epoch=epoch, partitions=partitions)
        )
    if tuple(places) == present.logical_queues:
        return present
    return Assignment(epoch=epoch, logical_queues=tuple(places))
