"""What becomes of an item whose hand-out ended without success: when it comes back, and when it dies."""

from __future__ import annotations

import random

import msgspec

from querator.items import Item, Origin
from querator.queues import QueueSettings, RetryPolicy


def cause_of_death(
    settings: QueueSettings, *, attempts: int, expire_at_ms: int, now_ms: int, rejected: bool
) -> str | None:
    """Why an item must not come back, or None if it may."""
    if rejected:
        return "rejected"
    if expire_at_ms <= now_ms:
        return "expired"
    if settings.max_attempts and attempts >= settings.max_attempts:
        return "attempts"
    return None


def backoff_ms(policy: RetryPolicy, attempts: int, rng: random.Random) -> int:
    """How long an item waits that was handed out ``attempts`` times."""
    if not policy.base_ms:
        return 0
    exponent = min(attempts - 1, 64)  # far above every max, and no overflow
    delay_ms = min(float(policy.max_ms), policy.base_ms * policy.factor**exponent)
    return max(0, round(delay_ms * (1 + policy.jitter * rng.uniform(-1, 1))))


def dead_item(
    item: Item, *, queue_name: str, item_id: str, reason: str, attempts: int, created_at_ms: int, now_ms: int
) -> Item:
    """The item as it goes to the dead queue: with its origin, and a fresh life there."""
    origin = Origin(queue_name, item_id, reason, attempts, now_ms)
    return msgspec.structs.replace(item, attempts=0, created_at=created_at_ms, expire_at=0, origin=origin)
