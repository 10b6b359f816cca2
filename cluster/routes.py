"""Where the logical queues of a queue are: on this instance, or on which other one."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.assignment import NOBODY, LogicalQueuePlace
from querator.errors import InvalidRequest, RetryRequest
from querator.logical_queue import LogicalQueue


class Route:
    """Of one queue, at one moment. Thrown away when something changes."""

    __slots__ = ("_by_partition", "_next", "alone", "here", "instances", "queue_name")

    def __init__(
        self,
        queue_name: str,
        partitions: Sequence[int],
        here: Sequence[LogicalQueue],
        away: Sequence[LogicalQueuePlace],
    ) -> None:
        self.queue_name = queue_name
        self.here = list(here)
        self.instances = list(dict.fromkeys(place.instance for place in away if place.instance != NOBODY))
        owns_all = len(self.here) == 1 and not away and len(self.here[0].members) == len(partitions)
        self.alone = self.here[0] if owns_all else None
        self._by_partition: dict[int, LogicalQueue | str] = dict.fromkeys(partitions, NOBODY)
        for place in away:
            self._by_partition.update(dict.fromkeys(place.partitions, place.instance))
        for logical_queue in self.here:
            self._by_partition.update(dict.fromkeys(logical_queue.members, logical_queue))
        self._next = 0

    def owner(self, partition: int) -> LogicalQueue | str:
        """The logical queue here that owns a partition, or the instance that does."""
        owner = self._by_partition.get(partition)
        if owner is None:
            raise InvalidRequest("partition is invalid", f"'{self.queue_name}' has no partition {partition}")
        if owner == NOBODY:
            raise self.unowned()
        return owner

    def any(self) -> LogicalQueue | str:
        """One that takes produces: here if there is one, the next each time."""
        self._next += 1
        working = [each for each in self.here if each.works] if len(self.here) > 1 or self.instances else self.here
        if working:
            return working[self._next % len(working)]
        if self.instances:
            return self.instances[self._next % len(self.instances)]
        if self.here:
            return self.here[0]
        raise self.unowned()

    def unowned(self) -> RetryRequest:
        return RetryRequest("queue is not open", f"no instance owns all partitions of '{self.queue_name}' now")
