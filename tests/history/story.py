"""Tells a history in a few lines, by a clock that the teller turns: for the checker's own tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from querator.clock import ManualClock
from tests.history.checker import Report, check
from tests.history.events import Claim, Counted, Event, HandOut, Outcome, QueueFacts, Sent
from tests.history.recorder import Recorder

LEASE_MS = 1000


class Story:
    """Each call takes a step of 1 ms to its answer; a lease is granted in the middle of that."""

    def __init__(self, **facts: object) -> None:
        self.clock = ManualClock()
        self.events: list[Event] = [
            QueueFacts(queue="mail", lease_timeout_ms=LEASE_MS, **facts),  # type: ignore[arg-type]
            QueueFacts(queue="dead", lease_timeout_ms=LEASE_MS),
        ]
        self._clients: dict[str, Recorder] = {}

    def client(self, name: str) -> Recorder:
        if name not in self._clients:
            self._clients[name] = Recorder(name, self.clock, self.events.append)
        return self._clients[name]

    def produce(
        self, *tags: str, outcome: Outcome | None = "ok", by: str = "p", queue: str = "mail", due_in_ms: int = 0
    ) -> None:
        """An outcome of None leaves the call without an end."""
        due_at_ms = self.clock.now_ms() + due_in_ms if due_in_ms else 0
        sent = [Sent(tag=tag, enqueue_at_ms=due_at_ms) for tag in tags]
        number = self.client(by).invoked("produce", queue, sent=sent)
        self.clock.advance(1)
        if outcome:
            self.client(by).returned(number, outcome)

    def reserve(self, *items: str | tuple[str, int], by: str = "c", queue: str = "mail") -> None:
        """Items are named by their tag, at their first attempt, or with the number of the attempt."""
        number = self.client(by).invoked("reserve", queue)
        self.clock.advance(1)
        deadline_ms = self.clock.now_ms() + LEASE_MS
        handed = [
            HandOut(tag=tag, id=f"{tag}/{attempts}", attempts=attempts, lease_deadline_ms=deadline_ms)
            for tag, attempts in _attempts(items)
        ]
        self.client(by).returned(number, "ok", items=handed)

    def lose_reserve(self, queue: str = "mail") -> None:
        number = self.client("lost").invoked("reserve", queue)
        self.clock.advance(1)
        self.client("lost").returned(number, "unknown")

    def complete(
        self, *items: str | tuple[str, int], outcome: Outcome = "ok", by: str = "c", queue: str = "mail"
    ) -> None:
        claims = [Claim(tag=tag, attempts=attempts) for tag, attempts in _attempts(items)]
        number = self.client(by).invoked("complete", queue, claims=claims)
        self.clock.advance(1)
        self.client(by).returned(number, outcome)

    def retry(
        self,
        *items: str | tuple[str, int],
        outcome: Outcome = "ok",
        by: str = "c",
        in_ms: int = 0,
        dead: bool = False,
    ) -> None:
        retry_at_ms = self.clock.now_ms() + in_ms if in_ms else 0
        claims = [
            Claim(tag=tag, attempts=attempts, retry_at_ms=retry_at_ms, dead=dead) for tag, attempts in _attempts(items)
        ]
        number = self.client(by).invoked("retry", "mail", claims=claims)
        self.clock.advance(1)
        self.client(by).returned(number, outcome)

    def renew(
        self, *items: str | tuple[str, int], outcome: Outcome = "ok", by: str = "c", lease_timeout_ms: int = LEASE_MS
    ) -> None:
        claims = [Claim(tag=tag, attempts=attempts) for tag, attempts in _attempts(items)]
        number = self.client(by).invoked("renew", "mail", claims=claims, lease_timeout_ms=lease_timeout_ms)
        self.clock.advance(1)
        self.client(by).returned(number, outcome, lease_deadline_ms=self.clock.now_ms() + lease_timeout_ms)

    def expire(self) -> None:
        """Let every lease run out."""
        self.clock.advance(LEASE_MS + 1)

    def count(self, items: int, *, drained: bool = False) -> None:
        self.events.append(Counted(at_ms=self.clock.now_ms(), items=items, drained=drained))

    def check(self) -> Report:
        return check(self.events)


def _attempts(items: Iterable[str | tuple[str, int]]) -> Sequence[tuple[str, int]]:
    return [(item, 1) if isinstance(item, str) else item for item in items]
