"""How queues are made, changed and looked at: `queues.*`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from api.checks import check_limit, read_duration
from cluster.router import Router
from cluster.sight import OwnedPartition
from querator import wire
from querator.durations import format_duration, to_instant
from querator.errors import InvalidRequest
from querator.limits import Limits
from querator.queues import (
    PartitionPlace,
    Queue,
    QueueSettings,
    QueueStats,
    RetryPolicy,
    read_logical_queues,
    show_logical_queues,
)


class QueuesCalls:
    def __init__(self, router: Router, limits: Limits) -> None:
        self._router = router
        self._limits = limits

    async def create(self, request: wire.CreateRequest, _extended: bool) -> None:
        settings: dict[str, Any] = {
            name: value
            for name in ("dead_queue", "reference", "max_attempts", "requested_partitions", "namespace")
            if (value := getattr(request, name))
        }
        if request.lease_timeout:
            settings["lease_timeout_ms"] = read_duration("lease_timeout", request.lease_timeout)
        if request.expire_timeout:
            settings["expire_timeout_ms"] = read_duration("expire_timeout", request.expire_timeout)
        if request.retry_policy is not UNSET:
            settings["retry_policy"] = _retry_policy(RetryPolicy(), request.retry_policy)
        if request.logical_queues:
            settings["logical_queues"] = _logical_queues(request.logical_queues)
        await self._router.management.create_queue(QueueSettings(queue_name=request.queue_name, **settings))

    async def update(self, request: wire.UpdateRequest, _extended: bool) -> None:
        queue = self._router.queue(request.queue_name)
        changes: dict[str, Any] = {
            name: value
            for name in ("dead_queue", "reference", "max_attempts", "requested_partitions", "namespace")
            if (value := getattr(request, name)) is not UNSET
        }
        if request.lease_timeout is not UNSET:
            changes["lease_timeout_ms"] = read_duration("lease_timeout", request.lease_timeout)
        if request.expire_timeout is not UNSET:
            changes["expire_timeout_ms"] = read_duration("expire_timeout", request.expire_timeout)
        if request.retry_policy is not UNSET:
            changes["retry_policy"] = _retry_policy(queue.settings.retry_policy, request.retry_policy)
        if request.logical_queues is not UNSET:
            changes["logical_queues"] = _logical_queues(request.logical_queues)
        await self._router.management.update_queue(request.queue_name, changes)

    async def delete(self, request: wire.DeleteRequest, _extended: bool) -> None:
        await self._router.management.delete_queue(request.queue_name, request.force)

    async def list(self, request: wire.ListRequest, extended: bool) -> wire.ListAnswer:
        limit = check_limit(request.limit, self._limits)
        queues = await self._router.list_queues(request.pivot, limit, request.namespace)
        return wire.ListAnswer(items=[_queue_info(queue, extended) for queue in queues])

    async def info(self, request: wire.InfoRequest, extended: bool) -> wire.QueueInfo:
        queue = self._router.queue(request.queue_name)
        info = _queue_info(queue, extended)
        if extended:
            stats = await self._router.queue_stats(request.queue_name)
            _add_stats(info, stats)
            _add_owners(info, self._router.sight.owners(request.queue_name))
            info.partial = self._router.is_partial(stats)
            info.missing = stats.missing
        return info


def _retry_policy(present: RetryPolicy, asked: wire.RetryPolicy) -> RetryPolicy:
    """The present policy with what is asked changed, and nothing else."""
    changes: dict[str, Any] = {}
    if asked.base is not UNSET:
        changes["base_ms"] = read_duration("retry_policy.base", asked.base)
    if asked.max is not UNSET:
        changes["max_ms"] = read_duration("retry_policy.max", asked.max)
    if asked.factor is not UNSET:
        changes["factor"] = asked.factor
    if asked.jitter is not UNSET:
        changes["jitter"] = asked.jitter
    return msgspec.structs.replace(present, **changes)


def _logical_queues(text: str) -> int:
    try:
        return read_logical_queues(text)
    except ValueError as error:
        raise InvalidRequest("logical_queues is invalid", str(error)) from None


def _queue_info(queue: Queue, extended: bool) -> wire.QueueInfo:
    settings = queue.settings
    info = wire.QueueInfo(
        queue_name=settings.queue_name,
        created_at=to_instant(queue.created_at_ms),
        updated_at=to_instant(queue.updated_at_ms),
        dead_queue=settings.dead_queue,
        reference=settings.reference,
        lease_timeout=format_duration(settings.lease_timeout_ms),
        expire_timeout=format_duration(settings.expire_timeout_ms),
        max_attempts=settings.max_attempts,
        requested_partitions=settings.requested_partitions,
        partitions=[_partition_info(place, extended) for place in queue.partitions],
        namespace=settings.namespace,
    )
    if extended:
        policy = settings.retry_policy
        info.retry_policy = wire.RetryPolicyInfo(
            base=format_duration(policy.base_ms),
            factor=policy.factor,
            max=format_duration(policy.max_ms),
            jitter=policy.jitter,
        )
        info.produce_paused = queue.produce_paused
        info.reserve_paused = queue.reserve_paused
        info.logical_queues = show_logical_queues(settings.logical_queues)
    return info


def _partition_info(place: PartitionPlace, extended: bool) -> wire.PartitionInfo:
    if not extended:
        return wire.PartitionInfo(partition=place.number)
    return wire.PartitionInfo(partition=place.number, backend=place.backend, epoch=place.epoch)


def _add_stats(info: wire.QueueInfo, stats: QueueStats) -> None:
    by_number = {
        partition.partition: partition
        for logical_queue in stats.logical_queues
        for partition in logical_queue.partitions
    }
    for partition in info.partitions:
        found = by_number.get(partition.partition)
        if found is not None:
            partition.state = found.state
            partition.ready = found.ready
            partition.leased = found.leased
            partition.scheduled = found.scheduled
            partition.outbox = found.outbox


def _add_owners(info: wire.QueueInfo, owners: Sequence[OwnedPartition]) -> None:
    by_number = {owned.partition: owned for owned in owners}
    for partition in info.partitions:
        owned = by_number.get(partition.partition)
        if owned is not None:
            partition.instance = owned.instance
            partition.address = owned.address
            partition.logical_queue = owned.logical_queue
            partition.epoch = owned.epoch
