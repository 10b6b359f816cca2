"""Which settings of a queue are allowed. Every error names the field."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.catalog import Catalog
from querator.errors import InvalidRequest
from querator.limits import Limits
from querator.names import check_queue_name
from querator.queues import QueueSettings

MAX_TEXT_BYTES = 2000  # of namespace and reference
MAX_LEASE_TIMEOUT_MS = 24 * 3_600_000
MAX_EXPIRE_TIMEOUT_MS = 10 * 365 * 24 * 3_600_000
MAX_ATTEMPTS = 65_535


def check_settings(settings: QueueSettings, catalog: Catalog, limits: Limits) -> None:
    for field, details in find_mistakes(settings, limits):
        raise _invalid(field, details)
    if settings.dead_queue:
        _check_dead_queue(settings, catalog)


def find_mistakes(settings: QueueSettings, limits: Limits) -> Iterator[tuple[str, str]]:
    """What is wrong with a queue's settings, whatever other queues there are: the field, and what it must be."""
    for field in ("queue_name", "dead_queue"):
        if field == "queue_name" or settings.dead_queue:
            yield from _name_mistakes(field, getattr(settings, field))
    for field in ("namespace", "reference"):
        if len(getattr(settings, field).encode()) > MAX_TEXT_BYTES:
            yield field, f"it must not be longer than {MAX_TEXT_BYTES} bytes"
    yield from _out_of_range(
        "lease_timeout", settings.lease_timeout_ms, limits.min_timeout_ms, MAX_LEASE_TIMEOUT_MS, "ms"
    )
    yield from _out_of_range("expire_timeout", settings.expire_timeout_ms, 0, MAX_EXPIRE_TIMEOUT_MS, "ms")
    yield from _out_of_range("max_attempts", settings.max_attempts, 0, MAX_ATTEMPTS)
    yield from _out_of_range("requested_partitions", settings.requested_partitions, 1, limits.partitions_per_queue)
    if settings.logical_queues > limits.partitions_per_queue:
        yield "logical_queues", f"it must be 'auto' or between 1 and {limits.partitions_per_queue}"
    policy = settings.retry_policy
    yield from _out_of_range("retry_policy.base", policy.base_ms, 0, MAX_EXPIRE_TIMEOUT_MS, "ms")
    yield from _out_of_range("retry_policy.factor", policy.factor, 1.0, 100.0)
    yield from _out_of_range("retry_policy.max", policy.max_ms, policy.base_ms, MAX_EXPIRE_TIMEOUT_MS, "ms")
    yield from _out_of_range("retry_policy.jitter", policy.jitter, 0.0, 1.0)


def _name_mistakes(field: str, name: str) -> Iterator[tuple[str, str]]:
    try:
        check_queue_name(name, field)
    except InvalidRequest as error:
        yield field, error.details


def _check_dead_queue(settings: QueueSettings, catalog: Catalog) -> None:
    """A dead queue exists, is not the queue itself and has none of its own."""
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


def _out_of_range(field: str, value: float, low: float, high: float, unit: str = "") -> Iterator[tuple[str, str]]:
    if not low <= value <= high:
        yield field, f"it must be between {low} and {high}{unit and ' ' + unit}"


def _invalid(field: str, details: str) -> InvalidRequest:
    return InvalidRequest(f"{field} is invalid", details)
