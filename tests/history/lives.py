"""A history by item: where each was produced, every hand-out of it, and every claim on a hand-out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.history.events import Claim, Counted, Event, HandOut, Invoked, Outcome, QueueFacts, Returned, Sent

_NEVER_MS = 2**62


class Operation(NamedTuple):
    """A call with its end. One whose end nobody wrote down may still be under way."""

    asked: Invoked
    end: Returned | None

    @property
    def key(self) -> tuple[str, int]:
        return self.asked.client, self.asked.number

    @property
    def outcome(self) -> Outcome:
        return self.end.outcome if self.end else "unknown"

    @property
    def returned_at_ms(self) -> int:
        return self.end.at_ms if self.end else _NEVER_MS

    def __str__(self) -> str:
        asked = self.asked
        until = f"{self.end.at_ms}" if self.end else "?"
        reason = f" ({self.end.reason})" if self.end and self.end.reason else ""
        return (
            f"{asked.client}#{asked.number} {asked.call} '{asked.queue}' {asked.at_ms}–{until} {self.outcome}{reason}"
        )


class Produced(NamedTuple):
    operation: Operation
    sent: Sent
    position: int  # within its call

    def __str__(self) -> str:
        due = f", due {self.sent.enqueue_at_ms}" if self.sent.enqueue_at_ms else ""
        return f"{self.operation}: item {self.position}{due}"


class Delivery(NamedTuple):
    operation: Operation
    item: HandOut
    stage: int  # 0 in the queue it was produced to, 1 in the dead queue
    granted_at_ms: int  # by the server's clock

    @property
    def rank(self) -> tuple[int, int]:
        """Grows with every hand-out of an item."""
        return self.stage, self.item.attempts

    def __str__(self) -> str:
        lease = f"{self.granted_at_ms}–{self.item.lease_deadline_ms}"
        return f"{self.operation}: {self.item.id}, attempt {self.item.attempts}, leased {lease}"


class Claimed(NamedTuple):
    operation: Operation
    claim: Claim
    stage: int

    @property
    def rank(self) -> tuple[int, int]:
        return self.stage, self.claim.attempts

    def __str__(self) -> str:
        more = (f", until {self.claim.retry_at_ms}" if self.claim.retry_at_ms else "") + (
            ", dead" if self.claim.dead else ""
        )
        return f"{self.operation}: attempt {self.claim.attempts}{more}"


class Life:
    """All that is known of one item, in the order of its hand-outs."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.produced: Produced | None = None
        self.deliveries: list[Delivery] = []
        self.claims: list[Claimed] = []

    @property
    def home(self) -> str:
        return self.produced.operation.asked.queue if self.produced else ""

    def completes(self, *outcomes: Outcome) -> list[Claimed]:
        return [each for each in self.claims if _is(each, "complete") and each.operation.outcome in outcomes]

    def retries(self, *outcomes: Outcome) -> list[Claimed]:
        return [each for each in self.claims if _is(each, "retry") and each.operation.outcome in outcomes]

    def claims_on(self, delivery: Delivery) -> list[Claimed]:
        return [each for each in self.claims if each.rank == delivery.rank]

    def is_found_after(self, claimed: Claimed) -> bool:
        """Whether this complete cannot have landed: the item was handed out or completed after it."""
        later = any(delivery.rank > claimed.rank for delivery in self.deliveries)
        return later or any(each.operation is not claimed.operation for each in self.completes("ok"))


def _is(claimed: Claimed, call: str) -> bool:
    return claimed.operation.asked.call == call


class History:
    """The events of all clients, sorted out in one pass."""

    def __init__(self, events: Iterable[Event]) -> None:
        events = list(events)
        self.queues = {event.queue: event for event in events if isinstance(event, QueueFacts)}
        self.counts = [event for event in events if isinstance(event, Counted)]
        ends = {(event.client, event.number): event for event in events if isinstance(event, Returned)}
        self.operations = sorted(
            (
                Operation(event, ends.get((event.client, event.number)))
                for event in events
                if isinstance(event, Invoked)
            ),
            key=lambda operation: operation.asked.at_ms,
        )
        self.lives: dict[str, Life] = {}
        self.sent_twice: list[tuple[Produced, Produced]] = []
        self._read(self.operations)
        self.ended_at_ms = max((event.at_ms for event in events if not isinstance(event, QueueFacts)), default=0)
        self.lost_reserves = Counter(
            operation.asked.queue for operation in self.of("reserve") if operation.outcome == "unknown"
        )

    def of(self, call: str) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.asked.call == call)

    def facts(self, queue: str) -> QueueFacts:
        return self.queues.get(queue) or QueueFacts(queue=queue)

    def life(self, tag: str) -> Life:
        life = self.lives.get(tag)
        if life is None:
            life = self.lives[tag] = Life(tag)
        return life

    def _read(self, operations: list[Operation]) -> None:
        for operation in operations:
            for position, sent in enumerate(operation.asked.sent):
                self._read_sent(Produced(operation, sent, position))
        for operation in operations:
            for item in operation.end.items if operation.end else ():
                self._read_hand_out(operation, item)
            for claim in operation.asked.claims:
                life = self.life(claim.tag)
                life.claims.append(Claimed(operation, claim, _stage(life, operation.asked.queue)))
        for life in self.lives.values():
            life.deliveries.sort(key=lambda delivery: (delivery.rank, delivery.granted_at_ms))

    def _read_sent(self, produced: Produced) -> None:
        life = self.life(produced.sent.tag)
        if life.produced is not None:
            self.sent_twice.append((life.produced, produced))
        life.produced = produced

    def _read_hand_out(self, operation: Operation, item: HandOut) -> None:
        queue = operation.asked.queue
        life = self.life(item.tag)
        lease_timeout_ms = operation.asked.lease_timeout_ms or self.facts(queue).lease_timeout_ms
        granted_at_ms = item.lease_deadline_ms - lease_timeout_ms
        life.deliveries.append(Delivery(operation, item, _stage(life, queue), granted_at_ms))


def _stage(life: Life, queue: str) -> int:
    return 0 if life.home in {"", queue} else 1
