"""Which settings of a queue are allowed. Every error names the field."""

from __future__ import annotations

from cluster.catalog import Catalog
from querator.errors import InvalidRequest
from querator.limits import Limits
from querator.names import check_queue_name
from querator.queues import QueueSettings, RetryPolicy

MAX_TEXT_BYTES = 2000  # of namespace and reference
MAX_LEASE_TIMEOUT_MS = 24 * 3_600_000
MAX_EXPIRE_TIMEOUT_MS = 10 * 365 * 24 * 3_600_000
MAX_ATTEMPTS = 65_535


def check_settings(settings: QueueSettings, catalog: Catalog, limits: Limits) -> None:
    check_queue_name(settings.queue_name)
    for field in ("namespace", "reference"):
        if len(getattr(settings, field).encode()) > MAX_TEXT_BYTES:
            raise _invalid(field, f"it must not be longer than {MAX_TEXT_BYTES} bytes")
    _check_range("lease_timeout", settings.lease_timeout_ms, limits.min_timeout_ms, MAX_LEASE_TIMEOUT_MS, "ms")
    _check_range("expire_timeout", settings.expire_timeout_ms, 0, MAX_EXPIRE_TIMEOUT_MS, "ms")
    _check_range("max_attempts", settings.max_attempts, 0, MAX_ATTEMPTS)
    _check_range("requested_partitions", settings.requested_partitions, 1, limits.partitions_per_queue)
    _check_retry_policy(settings.retry_policy)
    if settings.dead_queue:
        _check_dead_queue(settings, catalog)


def _check_retry_policy(policy: RetryPolicy) -> None:
    _check_range("retry_policy.base", policy.base_ms, 0, MAX_EXPIRE_TIMEOUT_MS, "ms")
    _check_range("retry_policy.factor", policy.factor, 1.0, 100.0)
    _check_range("retry_policy.max", policy.max_ms, policy.base_ms, MAX_EXPIRE_TIMEOUT_MS, "ms")
    _check_range("retry_policy.jitter", policy.jitter, 0.0, 1.0)


def _check_dead_queue(settings: QueueSettings, catalog: Catalog) -> None:
    """A dead queue exists, is not the queue itself and has none of its own."""
    check_queue_name(settings.dead_queue, "dead_queue")
    if settings.dead_queue == settings.queue_name:
        raise _invalid("dead_queue", "a queue cannot be its own dead queue")
    dead_queue = catalog.find(settings.dead_queue)
    if dead_queue is None:
        raise _invalid("dead_queue", f"no queue is named '{settings.dead_queue}'")
    if dead_queue.settings.dead_queue:
        raise _invalid("dead_queue", f"'{settings.dead_queue}' has a dead queue of its own")
    for queue in catalog.all():
        if queue.settings.dead_queue == settings.queue_name:
            raise _invalid("dead_queue", f"'{settings.queue_name}' is the dead queue of '{queue.name}'")


def _check_range(field: str, value: float, low: float, high: float, unit: str = "") -> None:
    if not low <= value <= high:
        raise _invalid(field, f"it must be between {low} and {high}{unit and ' ' + unit}")


def _invalid(field: str, details: str) -> InvalidRequest:
    return InvalidRequest(f"{field} is invalid", details)
