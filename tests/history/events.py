"""What a client writes down of its calls: one event when it asks, one when it knows how that ended.

A history is all events of all clients, with what is known of the queues. Instants are milliseconds by the client's clock,
except the deadlines, which are the server's. An item is known by the tag that its payload starts with: a client makes a
new one for every item of every call, also when it sends the same work again.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Call = Literal["produce", "reserve", "complete", "retry", "renew"]
Outcome = Literal["ok", "failed", "unknown"]  # answered 200; refused, so that nothing changed; anything else


class Sent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An item of a produce."""

    tag: str
    enqueue_at_ms: int = 0


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A hand-out that a complete, retry or renew names."""

    tag: str
    attempts: int
    retry_at_ms: int = 0
    dead: bool = False


class HandOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An item that a reserve was answered with."""

    tag: str
    id: str
    attempts: int
    lease_deadline_ms: int


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="queue", tag_field="event"):
    queue: str
    partitions: int = 1
    lease_timeout_ms: int = 60_000
    expire_timeout_ms: int = 0
    max_attempts: int = 0
    dead_queue: str = ""


class Invoked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="invoked", tag_field="event"):
    client: str
    number: int  # of the client's call
    at_ms: int
    call: Call
    queue: str
    partition: int = 0
    sent: tuple[Sent, ...] = ()
    claims: tuple[Claim, ...] = ()
    lease_timeout_ms: int = 0  # 0: the queue's


class Returned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="returned", tag_field="event"):
    client: str
    number: int
    at_ms: int
    outcome: Outcome
    partition: int = 0
    items: tuple[HandOut, ...] = ()
    lease_deadline_ms: int = 0  # of a renew
    reason: str = ""


class Counted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="counted", tag_field="event"):
    """What the server says it holds in all queues, while no call was under way."""

    at_ms: int
    items: int  # ready, leased and scheduled ones
    drained: bool = False  # whether everything had been taken out before


Event = QueueFacts | Invoked | Returned | Counted
