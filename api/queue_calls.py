"""What producers and consumers call: `queue.*`. The first five are hot: no coroutine, as little as possible per item."""

from __future__ import annotations

import asyncio
from datetime import datetime

from msgspec import UNSET

from api.checks import (
    check_batch_size,
    check_client_id,
    check_count,
    fit_int32,
    read_duration,
    read_instant,
    read_lease_timeout,
    read_timeout,
)
from cluster.router import Router
from querator import wire
from querator.blocks import ready_at_ms
from querator.durations import format_duration, to_instant
from querator.errors import InvalidRequest
from querator.items import NEVER_MS, Item
from querator.limits import Limits
from querator.queues import LogicalQueueStats, PartitionStats
from querator.requests import Produced, Reservation, RetryItem, Run, Scheduled


class QueueCalls:
    def __init__(self, router: Router, limits: Limits) -> None:
        self._router = router
        self._limits = limits

    def produce(self, request: wire.ProduceRequest, _extended: bool) -> asyncio.Future[Produced]:
        asked = request.items
        check_count("items", len(asked), self._limits)
        timeout_ms = read_timeout(request.request_timeout, self._limits)
        items = [
            Item(item.payload or item.utf8.encode(), item.encoding, item.kind, item.reference)
            for item in asked
            if item.enqueue_at is UNSET and not item.expire_timeout
        ]
        scheduled: list[Scheduled] = []
        if len(items) != len(asked):
            items, scheduled = self._with_times(asked)
        size = sum([len(item.payload) for item in items]) + sum(len(each.item.payload) for each in scheduled)
        return self._router.produce(request.queue_name, items, scheduled, size, timeout_ms)

    def _with_times(self, asked: list[wire.ProduceItem]) -> tuple[list[Item], list[Scheduled]]:
        """Items that say when they are due or when they expire. An `enqueue_at` that is past is taken off."""
        now_ms = self._router.clock.now_ms()
        items: list[Item] = []
        scheduled: list[Scheduled] = []
        for index, each in enumerate(asked):
            due_at_ms = 0 if each.enqueue_at is UNSET else read_instant(each.enqueue_at)
            item = Item(each.payload or each.utf8.encode(), each.encoding, each.kind, each.reference)
            if each.expire_timeout:
                timeout_ms = read_duration(f"items[{index}].expire_timeout", each.expire_timeout)
                item.expire_at = max(now_ms, due_at_ms) + timeout_ms if timeout_ms else NEVER_MS
            if due_at_ms > now_ms:
                scheduled.append(Scheduled(due_at_ms, item))
            else:
                each.enqueue_at = UNSET
                items.append(item)
        return items, scheduled

    def produced(self, request: wire.ProduceRequest, result: Produced, extended: bool) -> wire.ProduceAnswer:
        if not extended:
            return _PRODUCED
        ready = iter([item_id for run in result.runs for item_id in run.ids()])
        scheduled = iter(result.scheduled_ids)
        ids = [next(ready if item.enqueue_at is UNSET else scheduled) for item in request.items]
        return wire.ProduceAnswer(code=200, partition=result.partition, ids=ids)

    def reserve(self, request: wire.ReserveRequest, _extended: bool) -> asyncio.Future[Reservation]:
        return self._router.reserve(
            request.queue_name,
            check_batch_size(request.batch_size, self._limits),
            check_client_id(request.client_id),
            read_timeout(request.request_timeout, self._limits),
            read_lease_timeout(request.lease_timeout, self._limits),
        )

    def reserved(self, request: wire.ReserveRequest, result: Reservation, extended: bool) -> wire.ReserveAnswer:
        deadline = to_instant(result.lease_deadline_ms)
        items: list[wire.ReservedItem] = []
        for run in result.runs:
            items += _reserved_run(run, deadline)
            if extended:
                _add_created_at(items[-len(run.items) :], run)
        return wire.ReserveAnswer(queue_name=request.queue_name, partition=result.partition, items=items)

    def complete(self, request: wire.CompleteRequest, _extended: bool) -> asyncio.Future[None]:
        check_count("ids", len(request.ids), self._limits)
        timeout_ms = read_timeout(request.request_timeout, self._limits)
        return self._router.complete(request.queue_name, request.partition, request.ids, timeout_ms)

    def retry(self, request: wire.RetryRequest, _extended: bool) -> asyncio.Future[None]:
        check_count("items", len(request.items), self._limits)
        items = [
            RetryItem(item.id, 0 if item.retry_at is UNSET else read_instant(item.retry_at), item.dead)
            for item in request.items
        ]
        return self._router.retry(request.queue_name, request.partition, items, self._limits.default_timeout_ms)

    def renew(self, request: wire.RenewRequest, _extended: bool) -> asyncio.Future[int]:
        check_count("ids", len(request.ids), self._limits)
        lease_timeout_ms = read_lease_timeout(request.lease_timeout, self._limits)
        return self._router.renew(
            request.queue_name, request.partition, request.ids, self._limits.default_timeout_ms, lease_timeout_ms
        )

    def renewed(self, request: wire.RenewRequest, result: int, _extended: bool) -> wire.RenewAnswer:
        deadline = to_instant(result)
        items = [wire.RenewedItem(id=item_id, lease_deadline=deadline) for item_id in request.ids]
        return wire.RenewAnswer(queue_name=request.queue_name, partition=request.partition, items=items)

    def elsewhere(self, request: wire.ProduceRequest | wire.ReserveRequest) -> str:
        """Where clients reach an instance that can be asked, if this one owns nothing of the queue."""
        return self._router.elsewhere(request.queue_name)

    def owner_elsewhere(self, request: wire.CompleteRequest | wire.RetryRequest | wire.RenewRequest) -> str:
        """Where clients reach the owner of the partition, if that is another instance."""
        return self._router.elsewhere(request.queue_name, request.partition)

    async def stats(self, request: wire.StatsRequest, extended: bool) -> wire.StatsAnswer:
        stats = await self._router.queue_stats(request.queue_name)
        logical_queues = [_logical_queue_stats(each, extended) for each in stats.logical_queues]
        answer = wire.StatsAnswer(queue_name=stats.queue_name, logical_queues=logical_queues)
        if extended:
            answer.partial = self._router.is_partial(stats)
            answer.missing = stats.missing
        return answer

    async def clear(self, request: wire.ClearRequest, _extended: bool) -> None:
        if not request.queue and not request.scheduled:
            raise InvalidRequest(
                "queue is invalid", "one of queue and scheduled must be true, or there is nothing to do"
            )
        await self._router.clear_queue(request.queue_name, request.queue, request.scheduled, request.destructive)

    async def reload(self, request: wire.ReloadRequest, _extended: bool) -> None:
        await self._router.reload_queue(request.queue_name)

    async def pause(self, request: wire.PauseRequest, _extended: bool) -> None:
        await self._set_paused(request, True)

    async def resume(self, request: wire.PauseRequest, _extended: bool) -> None:
        await self._set_paused(request, False)

    async def _set_paused(self, request: wire.PauseRequest, paused: bool) -> None:
        both = not request.produce and not request.reserve
        produce = paused if request.produce or both else None
        reserve = paused if request.reserve or both else None
        await self._router.management.pause_queue(request.queue_name, produce, reserve)


_PRODUCED = wire.ProduceAnswer(code=200)


def _reserved_run(run: Run, deadline: datetime) -> list[wire.ReservedItem]:
    reserved_item = wire.ReservedItem
    return [
        reserved_item(item_id, deadline, item.attempts + 1, item.payload, item.encoding, item.kind, item.reference)
        for item_id, item in zip(run.ids(), run.items, strict=True)
    ]


def _add_created_at(reserved: list[wire.ReservedItem], run: Run) -> None:
    of_block = to_instant(ready_at_ms(run.block_id))
    for each, item in zip(reserved, run.items, strict=True):
        each.created_at = to_instant(item.created_at) if item.created_at else of_block


def _logical_queue_stats(stats: LogicalQueueStats, extended: bool) -> wire.LogicalQueueStats:
    return wire.LogicalQueueStats(
        produce_waiting=stats.produce_waiting,
        lease_waiting=stats.reserve_waiting,
        complete_waiting=stats.complete_waiting,
        in_flight=stats.in_flight,
        partitions=[_partition_stats(each, extended) for each in stats.partitions],
    )


def _partition_stats(stats: PartitionStats, extended: bool) -> wire.PartitionStats:
    answer = wire.PartitionStats(
        partition=stats.partition,
        total=fit_int32(stats.total),
        total_leased=fit_int32(stats.leased),
        failures=fit_int32(stats.failures),
        average_age=format_duration(stats.average_age_ms),
        average_leased_age=format_duration(stats.average_leased_age_ms),
        scheduled=fit_int32(stats.scheduled),
    )
    if extended:
        answer.backend = stats.backend
        answer.state = stats.state
        answer.epoch = stats.epoch
        answer.ready = stats.ready
        answer.outbox = stats.outbox
        answer.oldest_age = format_duration(stats.oldest_age_ms)
        answer.arrived = stats.arrived
        answer.completed = stats.completed
    return answer
