"""A queue as anybody would write it down: items, each in one state. No blocks, no turns, no storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ready", "leased", "scheduled", "completed", "dead"]


@dataclass(kw_only=True)
class ModelItem:
    tag: str
    state: State
    expire_at_ms: int | None
    attempts: int = 0
    due_at_ms: int = 0  # while scheduled
    deadline_ms: int = 0  # while leased
    id: str = ""  # of the present hand-out
    partition: int = 0


class ModelQueue:
    """Knows what every item must be; time is told by the caller."""

    def __init__(self, *, max_attempts: int) -> None:
        self.items: dict[str, ModelItem] = {}
        self.stale_ids: list[tuple[int, str]] = []  # partition and id of hand-outs that ended
        self._max_attempts = max_attempts

    def in_state(self, *states: State) -> list[ModelItem]:
        return [item for item in self.items.values() if item.state in states]

    def deliverable(self, now_ms: int) -> set[str]:
        return {item.tag for item in self.in_state("ready") if not _expired(item, now_ms)}

    def hand_out(self, tag: str, *, item_id: str, partition: int, deadline_ms: int, attempts: int) -> None:
        item = self.items[tag]
        assert item.state == "ready", f"{tag} was handed out while {item.state}"
        item.attempts += 1
        assert attempts == item.attempts
        item.state, item.id, item.partition, item.deadline_ms = "leased", item_id, partition, deadline_ms

    def complete(self, items: list[ModelItem]) -> None:
        for item in items:
            self._end_hand_out(item)
            item.state = "completed"

    def give_back(self, item: ModelItem, now_ms: int, *, retry_at_ms: int = 0, rejected: bool = False) -> None:
        self._end_hand_out(item)
        if rejected or _expired(item, now_ms) or (self._max_attempts and item.attempts >= self._max_attempts):
            item.state = "dead"
        elif retry_at_ms > now_ms:
            item.state, item.due_at_ms = "scheduled", retry_at_ms
        else:
            item.state = "ready"

    def advance(self, now_ms: int) -> None:
        for item in self.in_state("leased"):
            if item.deadline_ms <= now_ms:
                self.give_back(item, now_ms)
        for item in self.in_state("scheduled"):
            if item.due_at_ms <= now_ms:
                item.state = "ready"

    def _end_hand_out(self, item: ModelItem) -> None:
        assert item.state == "leased"
        self.stale_ids.append((item.partition, item.id))


def _expired(item: ModelItem, now_ms: int) -> bool:
    return item.expire_at_ms is not None and item.expire_at_ms <= now_ms
