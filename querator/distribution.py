"""Opportunistic distribution: which partition takes a produce, and who gets how much of what is ready.

Pure functions over loads, so that they can be tested without a queue.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence


class Room:
    """What one partition can take and give in this turn."""

    __slots__ = ("available", "items", "load", "size")

    def __init__(self, load: int, available: int) -> None:
        self.load = load  # ready items, before and in this turn
        self.available = available  # ready items that may be handed out in this turn
        self.items = 0  # put into this turn
        self.size = 0


def emptiest_first(rooms: Sequence[Room], max_items: int, max_bytes: int) -> Iterator[int]:
    """Indexes into ``rooms``, each time of the one with the lowest load; ends when all are full.

    The caller adds to the room between two steps.
    """
    heap = [(room.load, index) for index, room in enumerate(rooms)]
    heapq.heapify(heap)
    while heap:
        _, index = heap[0]
        room = rooms[index]
        if room.items >= max_items or room.size >= max_bytes:
            heapq.heappop(heap)
            continue
        yield index
        heapq.heapreplace(heap, (room.load, index))


def share(wanted: Iterable[int], waiting: int, rooms: Sequence[Room]) -> Iterator[tuple[int, int]]:
    """For each waiting reserve in turn, (index of the room, how many items): an even share from the fullest room.

    Ends when nothing is left. ``waiting`` is how many there are, ``wanted`` how much each asks for.
    """
    total = sum(room.available for room in rooms)
    heap = [(-room.available, index) for index, room in enumerate(rooms) if room.available]
    heapq.heapify(heap)
    for want in wanted:
        if not heap:
            return
        available, index = -heap[0][0], heap[0][1]
        fair = -(-total // max(1, min(waiting, total)))
        count = min(want, fair, available)
        yield index, count
        total -= count
        waiting -= 1
        if available > count:
            heapq.heapreplace(heap, (count - available, index))
        else:
            heapq.heappop(heap)
