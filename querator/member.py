"""A partition as a logical queue sees it: its memory, its inbox, the turn that is being committed, its status."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from enum import StrEnum

from querator.distribution import Room
from querator.errors import QueratorError
from querator.leases import Lease
from querator.partition import PartitionState
from querator.queues import PartitionStats
from querator.requests import Later, Produce, Request, Reserve, Unread
from querator.turn import Turn


class Status(StrEnum):
    AVAILABLE = "available"
    FAILING = "failing"  # storage errors; being opened again
    UNAVAILABLE = "unavailable"  # lost to another owner, or not open


class Member:
    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.status = Status.UNAVAILABLE
        self.inbox: deque[Request] = deque()
        self.produces: list[Produce] = []  # given to this partition, for the turn that is being made
        self.reserves: list[tuple[Reserve, int]] = []
        self.turn: Turn | None = None  # being committed, or in doubt
        self.abandoned: list[Lease] = []  # of callers that went away before they were answered
        self.reading: set[str] = set()  # what is being read: "ahead", "due", "bodies"
        self.news = asyncio.Event()  # set when a commit or a read has ended
        self.rare = asyncio.Lock()  # held by the operations of the cold path, one at a time
        self.failures = 0

    @property
    def number(self) -> int:
        return self.state.place.number

    @property
    def free(self) -> bool:
        """Whether a turn can begin."""
        return self.turn is None and self.status is Status.AVAILABLE

    @property
    def works(self) -> bool:
        """Whether what it was asked will be done, sooner or later."""
        return self.status is Status.AVAILABLE

    def forget(self) -> None:
        """All requests are answered, and nothing is being written any more."""
        self.inbox.clear()
        self.end_turn()

    def end_turn(self) -> None:
        self.turn = None
        self.news.set()

    def take_back(self, ids: list[str]) -> None:
        """The leases of these items were never heard of; the next turn ends them."""
        self.abandoned.extend(self.state.leases_of(ids))

    def has_work(self, now_ms: int) -> bool:
        """Whether a turn would have anything to do."""
        return bool(self.produces or self.reserves or self.inbox or self.abandoned or self.state.has_due(now_ms))

    def room(self) -> Room:
        return Room(load=self.state.ready, available=self.state.window_items)

    def next_event_ms(self) -> int:
        """When there is something to do without anybody asking."""
        state = self.state
        when_ms = state.next_expiry_ms()
        if "bodies" not in self.reading:
            when_ms = min(when_ms, state.leases.next_deadline_ms())
        if "due" not in self.reading:
            when_ms = min(when_ms, state.next_due_ms)
        return when_ms

    def empty_inbox(self, turn: Turn) -> list[set[int]]:
        """Give what waits here to a turn; returns the blocks that must be read for what had to stay."""
        later: list[Request] = []
        needed: list[set[int]] = []
        for _ in range(len(self.inbox)):
            request = self.inbox.popleft()
            if request.future.done():
                continue
            try:
                turn.add(request)
            except Later:
                later.append(request)
            except Unread as unread:
                later.append(request)
                needed.append(unread.block_ids)
            except QueratorError as error:
                request.future.set_exception(error)
        self.inbox.extend(later)
        return needed

    def waiting(self) -> Iterator[Request]:
        """All requests that are here and not answered."""
        yield from self.inbox
        if self.turn is not None:
            yield from self.turn.requests

    def in_doubt(self) -> list[Produce]:
        """Produces of which it is not known whether they are stored."""
        return [request for request in self.turn.requests if isinstance(request, Produce)] if self.turn else []

    def stats(self, now_ms: int) -> PartitionStats:
        state = self.state
        summary = state.summary
        return PartitionStats(
            partition=self.number,
            backend=state.place.backend,
            state=self.status,
            epoch=state.place.epoch,
            ready=state.ready,
            leased=state.leased,
            scheduled=summary.scheduled,
            outbox=summary.outbox,
            failures=self.failures,
            average_age_ms=_average_age_ms(summary.ready_at_sum, summary.items, now_ms),
            average_leased_age_ms=_average_age_ms(state.leased_ready_at_sum, state.leased, now_ms),
            oldest_age_ms=_oldest_age_ms(state, now_ms),
            arrived=state.arrived,
            completed=state.completed,
        )


def _average_age_ms(ready_at_sum: int, count: int, now_ms: int) -> int:
    return max(0, now_ms - ready_at_sum // count) if count else 0


def _oldest_age_ms(state: PartitionState, now_ms: int) -> int:
    head = next(iter(state.window.values()), None)
    return max(0, now_ms - head.ready_at_ms) if head is not None else 0
