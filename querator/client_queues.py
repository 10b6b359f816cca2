"""What may be said of a queue when it is made or changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, cast

from querator import wire
from querator.client_items import RetryPolicy
from querator.client_times import DurationLike, duration_text

_DURATIONS = ("lease_timeout", "expire_timeout")


class QueueOptions(TypedDict, total=False):
    """None is the same as not naming it."""

    requested_partitions: int | None
    lease_timeout: DurationLike | None  # of a reserved item
    expire_timeout: DurationLike | None  # of an item that was not done; 0 is never
    max_attempts: int | None  # 0 is no limit
    dead_queue: str | None
    retry_policy: RetryPolicy | None
    logical_queues: int | str | None  # "auto" follows the load
    reference: str | None
    namespace: str | None


def create_request(queue_name: str, options: QueueOptions) -> wire.CreateRequest:
    return wire.CreateRequest(queue_name=queue_name, **_to_wire(options))


def update_request(queue_name: str, options: QueueOptions) -> wire.UpdateRequest:
    return wire.UpdateRequest(queue_name=queue_name, **_to_wire(options))


def _to_wire(options: QueueOptions) -> dict[str, Any]:
    named = {name: value for name, value in cast("Mapping[str, Any]", options).items() if value is not None}
    for name in _DURATIONS:
        if name in named:
            named[name] = duration_text(named[name], name)
    if "retry_policy" in named:
        named["retry_policy"] = named["retry_policy"].to_wire()
    if "logical_queues" in named:
        named["logical_queues"] = str(named["logical_queues"])
    return named
