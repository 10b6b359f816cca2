"""When an item comes back, and when it dies."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querator.items import NEVER_MS, Item
from querator.lifecycle import backoff_ms, cause_of_death, dead_item
from querator.queues import QueueSettings, RetryPolicy


@pytest.mark.parametrize(
    ("attempts", "expire_at_ms", "rejected", "cause"),
    [
        (1, NEVER_MS, False, None),
        (2, NEVER_MS, False, None),
        (3, NEVER_MS, False, "attempts"),
        (4, NEVER_MS, False, "attempts"),
        (1, 101, False, None),
        (1, 100, False, "expired"),
        (1, NEVER_MS, True, "rejected"),
    ],
)
def test_an_item_dies_of_its_attempts_its_age_or_by_word(
    attempts: int, expire_at_ms: int, rejected: bool, cause: str | None
) -> None:
    """The limit is on hand-outs that have been, the deadline is the first instant that is too late."""
    settings = QueueSettings(queue_name="q", max_attempts=3)
    assert cause == cause_of_death(
        settings, attempts=attempts, expire_at_ms=expire_at_ms, now_ms=100, rejected=rejected
    )


def test_without_a_limit_attempts_never_kill() -> None:
    """A max_attempts of 0 means no limit."""
    settings = QueueSettings(queue_name="q")
    assert cause_of_death(settings, attempts=10**6, expire_at_ms=NEVER_MS, now_ms=0, rejected=False) is None


def test_the_backoff_grows_by_its_factor_up_to_its_most() -> None:
    """Base for the first attempt, times the factor for each further one."""
    policy = RetryPolicy(base_ms=100, factor=2.0, max_ms=1000, jitter=0.0)
    assert [backoff_ms(policy, attempts, random.Random(1)) for attempts in (1, 2, 3, 4, 5, 60_000)] == [
        100,
        200,
        400,
        800,
        1000,
        1000,
    ]
    assert backoff_ms(RetryPolicy(), 5, random.Random(1)) == 0


@settings(deadline=None)
@given(
    st.integers(1, 10**9),
    st.floats(1.0, 100.0),
    st.integers(0, 10**11),
    st.floats(0.0, 1.0),
    st.integers(1, 65_535),
    st.integers(),
)
def test_the_backoff_stays_within_its_jitter(
    base_ms: int, factor: float, more_ms: int, jitter: float, attempts: int, seed: int
) -> None:
    """No policy and no number of attempts overflows, or strays further than the jitter allows."""
    policy = RetryPolicy(base_ms=base_ms, factor=factor, max_ms=base_ms + more_ms, jitter=jitter)
    delay_ms = backoff_ms(policy, attempts, random.Random(seed))
    assert 0 <= delay_ms <= policy.max_ms * (1 + jitter) + 1
    assert delay_ms >= base_ms * (1 - jitter) - 1


def test_a_dead_item_begins_a_fresh_life_and_knows_its_origin() -> None:
    """Its payload and its creation stay; attempts and expiry begin anew in the dead queue."""
    item = Item(payload=b"x", kind="k", attempts=4, expire_at=77)
    dead = dead_item(item, queue_name="mail", item_id="id", reason="expired", attempts=5, created_at_ms=9, now_ms=100)
    assert (dead.payload, dead.kind, dead.attempts, dead.created_at, dead.expire_at) == (b"x", "k", 0, 9, 0)
    assert dead.origin is not None
    assert tuple(getattr(dead.origin, name) for name in ("queue_name", "id", "reason", "attempts", "died_at")) == (
        "mail",
        "id",
        "expired",
        5,
        100,
    )
    assert item.origin is None
