"""What is known of a queue: its settings, where its partitions are, and what they hold."""

from __future__ import annotations

import msgspec

AUTO = "auto"


def read_logical_queues(value: str | int) -> int:
    """How many logical queues a queue is to have, as users say it: `auto`, which is 0, or a number from 1 on."""
    if value == AUTO:
        return 0
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise ValueError(f"it must be '{AUTO}' or a number from 1 on, and is '{text[:20]}'")
    return int(text)


def show_logical_queues(number: int) -> str:
    return str(number) if number else AUTO


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long an item waits after a retry without ``retry_at``: base × factor^(attempts - 1), at most max."""

    base_ms: int = 0  # 0: the item is ready again at once, at the tail
    factor: float = 2.0
    max_ms: int = 3_600_000
    jitter: float = 0.2  # the delay is spread by up to this part of it, both ways


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What users decide about a queue. The defaults are those of `queues.create`."""

    queue_name: str
    namespace: str = ""
    reference: str = ""
    dead_queue: str = ""
    lease_timeout_ms: int = 60_000
    expire_timeout_ms: int = 0  # 0: items do not expire
    max_attempts: int = 0  # 0: no limit
    requested_partitions: int = 1
    retry_policy: RetryPolicy = RetryPolicy()
    logical_queues: int = 0  # 0: as many as the load asks for


class PartitionPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a partition lives."""

    number: int  # within its queue, as the API names it
    uid: int  # within the cluster, for ever: the name by which its backend knows it
    backend: str
    epoch: int = 0  # of its present owner


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as the catalog holds it."""

    settings: QueueSettings
    partitions: tuple[PartitionPlace, ...]
    created_at_ms: int
    updated_at_ms: int
    produce_paused: bool = False
    reserve_paused: bool = False

    @property
    def name(self) -> str:
        return self.settings.queue_name


class PartitionStats(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    backend: str
    state: str  # "available", "failing", "unavailable"
    epoch: int
    ready: int
    leased: int
    scheduled: int
    outbox: int
    failures: int  # commits that failed since the partition was opened
    average_age_ms: int  # of ready and leased items, since they last became ready
    average_leased_age_ms: int
    oldest_age_ms: int  # of the ready item at the head, since it last became ready; 0 if none is known
    arrived: int = 0  # items that were produced or delivered since the owner has the partition
    completed: int = 0

    @property
    def total(self) -> int:
        return self.ready + self.leased


class LogicalQueueStats(msgspec.Struct, frozen=True, kw_only=True):
    produce_waiting: int
    reserve_waiting: int
    complete_waiting: int
    in_flight: int  # requests that are being committed
    partitions: list[PartitionStats]


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    queue_name: str
    logical_queues: list[LogicalQueueStats]
    missing: list[str] = []  # instances that did not tell what they hold
