"""What a consuming client holds unanswered, and how much more it may be given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from querator.clock import Clock, Timer


class Flight:
    """An item is in flight from its hand-out until it is answered, or its lease ends: then it is another's."""

    def __init__(self, clock: Clock, max_in_flight: int) -> None:
        self._clock = clock
        self._max_in_flight = max_in_flight
        self._held: dict[str, tuple[int, int]] = {}  # id → partition, deadline of its lease in ms
        self._changed = asyncio.Event()

    def set_max(self, max_in_flight: int) -> bool:
        """Whether the new bound is lower."""
        lower = max_in_flight < self._max_in_flight
        self._max_in_flight = max_in_flight
        self._changed.set()
        return lower

    def add(self, ids: Iterable[str], partition: int, deadline_ms: int) -> None:
        self._held.update(dict.fromkeys(ids, (partition, deadline_ms)))

    def renew(self, ids: Iterable[str], deadline_ms: int) -> None:
        self._held.update({each: (self._held[each][0], deadline_ms) for each in ids if each in self._held})

    def drop(self, ids: Iterable[str]) -> None:
        for each in ids:
            self._held.pop(each, None)
        self._changed.set()

    def held(self) -> dict[int, list[str]]:
        """The ids whose lease has not ended, by partition."""
        self._let_go()
        by_partition: dict[int, list[str]] = {}
        for item_id, (partition, _) in self._held.items():
            by_partition.setdefault(partition, []).append(item_id)
        return by_partition

    async def room(self) -> int:
        """How many more may be handed out; waits until that is at least one."""
        while (room := self._room()) < 1:
            self._changed.clear()
            timer = self._wake_at_next_end()
            try:
                await self._changed.wait()
            finally:
                if timer is not None:
                    timer.cancel()
        return room

    def _room(self) -> int:
        room = self._max_in_flight - len(self._held)
        if room < 1:
            self._let_go()
            room = self._max_in_flight - len(self._held)
        return room

    def _let_go(self) -> None:
        now_ms = self._clock.now_ms()
        for item_id in [each for each, (_, deadline_ms) in self._held.items() if deadline_ms <= now_ms]:
            del self._held[item_id]

    def _wake_at_next_end(self) -> Timer | None:
        if not self._held:
            return None
        return self._clock.call_at(min(deadline_ms for _, deadline_ms in self._held.values()), self._changed.set)
