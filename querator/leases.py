"""Leases: the exclusive right of a client to some items until a deadline.

The leases that one turn grants are stored as one record, whatever their number: a group. It is written again only when a
lease is renewed, split or taken back, or when the group has nothing left in a block that it names.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from querator.items import NEVER_MS

_SPARE = 1000  # dead entries that the heap may hold anyway


class Lease:
    __slots__ = ("client_id", "deadline_ms", "group", "id", "slots")

    def __init__(self, lease_id: int, client_id: str, deadline_ms: int, slots: dict[int, int]) -> None:
        self.id = lease_id
        self.client_id = client_id
        self.deadline_ms = deadline_ms
        self.slots = slots  # block id → the slots that are still under this lease
        self.group: LeaseGroup

    def without(self, freed: dict[int, int]) -> dict[int, int]:
        """What is left of the slots once these are taken away."""
        return _without(self.slots, freed)


class LeaseGroup:
    __slots__ = ("id", "leases", "slots")

    def __init__(self, group_id: int) -> None:
        self.id = group_id
        self.leases: dict[int, Lease] = {}  # by id, those that have not ended
        self.slots: dict[int, int] = {}  # block id → the slots that are still under one of them

    def join(self, lease: Lease) -> None:
        lease.group = self
        self.leases[lease.id] = lease
        add_slots(self.slots, lease.slots)

    def without(self, freed: dict[int, int]) -> dict[int, int]:
        return _without(self.slots, freed)


def add_slots(to: dict[int, int], slots: dict[int, int]) -> None:
    for block_id, mask in slots.items():
        to[block_id] = to.get(block_id, 0) | mask


def _without(slots: dict[int, int], freed: dict[int, int]) -> dict[int, int]:
    if freed == slots:
        return {}
    left = {block_id: mask & ~freed.get(block_id, 0) for block_id, mask in slots.items()}
    return {block_id: mask for block_id, mask in left.items() if mask}


class Leases:
    """The leases of one partition, with the earliest deadline at hand."""

    def __init__(self) -> None:
        self._by_id: dict[int, Lease] = {}
        self._deadlines: list[tuple[int, int]] = []  # heap; may hold what is gone or was renewed

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._by_id.values())

    def add(self, lease: Lease) -> None:
        self._by_id[lease.id] = lease
        heapq.heappush(self._deadlines, (lease.deadline_ms, lease.id))

    def remove(self, lease: Lease) -> None:
        del self._by_id[lease.id]
        self._tidy()

    def renew(self, lease: Lease, deadline_ms: int) -> None:
        if deadline_ms != lease.deadline_ms:  # else it would be in the heap twice
            lease.deadline_ms = deadline_ms
            heapq.heappush(self._deadlines, (deadline_ms, lease.id))
            self._tidy()

    def next_deadline_ms(self) -> int:
        """The earliest deadline, or NEVER_MS."""
        deadlines = self._deadlines
        while deadlines:
            deadline_ms, lease_id = deadlines[0]
            lease = self._by_id.get(lease_id)
            if lease is not None and lease.deadline_ms == deadline_ms:
                return deadline_ms
            heapq.heappop(deadlines)
        return NEVER_MS

    def due(self, now_ms: int, limit: int) -> list[Lease]:
        """Up to ``limit`` leases whose deadline has passed, earliest first."""
        due: dict[int, Lease] = {}  # a lease that was renewed to and fro is in the heap twice
        while len(due) < limit and self.next_deadline_ms() <= now_ms:
            lease_id = heapq.heappop(self._deadlines)[1]
            due[lease_id] = self._by_id[lease_id]
        for lease in due.values():
            heapq.heappush(self._deadlines, (lease.deadline_ms, lease.id))
        return list(due.values())

    def _tidy(self) -> None:
        """Keep the heap in proportion to what is alive."""
        if len(self._deadlines) > 2 * len(self._by_id) + _SPARE:
            self._deadlines = [(lease.deadline_ms, lease.id) for lease in self._by_id.values()]
            heapq.heapify(self._deadlines)
