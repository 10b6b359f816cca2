"""The way from a queue's name to what answers for it. The API talks to this and to nothing below."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import structlog

from cluster.host import Host
from cluster.placement import spread
from cluster.settings import check_settings
from querator import cold_path
from querator.clock import Clock
from querator.errors import Conflict, InvalidRequest, RetryRequest
from querator.inspection import ItemView
from querator.items import Item
from querator.limits import Limits
from querator.member import Status
from querator.observer import Observer
from querator.queues import PartitionPlace, Queue, QueueSettings, QueueStats
from querator.requests import Produced, Reservation, RetryItem, Scheduled
from querator.waist import Backend, Health, StorageError

_log = structlog.get_logger(__name__)

_HEALTH_PATIENCE_S = 5.0


class BackendReport(NamedTuple):
    name: str
    driver: str
    affinity: float
    partitions: int


class Router:
    """The hot calls return a future, and raise at once what can be known at once."""

    def __init__(self, host: Host, limits: Limits) -> None:
        self._host = host
        self._limits = limits
        self._changing = asyncio.Lock()  # queues are made, changed and deleted one at a time

    @property
    def clock(self) -> Clock:
        return self._host.clock

    @property
    def observer(self) -> Observer:
        return self._host.observer

    # Hot calls: no coroutine, no task; cancel the future when the caller has gone.

    def produce(
        self, queue_name: str, items: list[Item], scheduled: list[Scheduled], size: int, timeout_ms: int
    ) -> asyncio.Future[Produced]:
        return self._host.logical_queues(queue_name)[0].produce(items, scheduled, size, timeout_ms)

    def reserve(
        self, queue_name: str, batch_size: int, client_id: str, timeout_ms: int, lease_timeout_ms: int = 0
    ) -> asyncio.Future[Reservation]:
        logical_queue = self._host.logical_queues(queue_name)[0]
        return logical_queue.reserve(batch_size, client_id, timeout_ms, lease_timeout_ms)

    def complete(self, queue_name: str, partition: int, ids: list[str], timeout_ms: int) -> asyncio.Future[None]:
        return self._host.owner(queue_name, partition).complete(partition, ids, timeout_ms)

    def retry(self, queue_name: str, partition: int, items: list[RetryItem], timeout_ms: int) -> asyncio.Future[None]:
        return self._host.owner(queue_name, partition).retry(partition, items, timeout_ms)

    def renew(
        self, queue_name: str, partition: int, ids: list[str], timeout_ms: int, lease_timeout_ms: int = 0
    ) -> asyncio.Future[int]:
        return self._host.owner(queue_name, partition).renew(partition, ids, timeout_ms, lease_timeout_ms)

    def stop_waiting(self) -> None:
        """The instance stops: reserves that wait are answered, and no new requests are taken."""
        self._host.stop_waiting()

    # Management. Names and bounds are checked here, for every door alike.

    async def create_queue(self, settings: QueueSettings) -> Queue:
        async with self._changing:
            return await self.create(settings)

    async def create(self, settings: QueueSettings) -> Queue:
        """Within `changing`."""
        catalog = self._host.catalog
        check_settings(settings, catalog, self._limits)
        if catalog.find(settings.queue_name) is not None:
            raise Conflict("queue already exists", f"a queue is named '{settings.queue_name}'")
        affinities = {name: backend.affinity for name, backend in self._host.backends.items()}
        async with self._host.burial.making(spread(settings.requested_partitions, affinities)) as places:
            await self._create_partitions(places)
            now_ms = self.clock.now_ms()
            queue = Queue(settings=settings, partitions=places, created_at_ms=now_ms, updated_at_ms=now_ms)
            await catalog.create(queue)
        await self._host.open(queue)
        _log.info("queue created", queue=queue.name, partitions=len(places))
        return catalog.get(queue.name)

    async def _create_partitions(self, places: Sequence[PartitionPlace]) -> None:
        for place in places:
            try:
                await self._host.backends[place.backend].create(place.uid)
            except StorageError as error:
                raise RetryRequest(
                    "backend is failing", f"'{place.backend}' takes no partitions now: {error}"
                ) from error

    async def update_queue(self, queue_name: str, changes: Mapping[str, Any]) -> Queue:
        """``changes`` maps fields of `QueueSettings` to new values; what is not named stays as it is."""
        async with self._changing:
            queue = self.queue(queue_name)
            settings = msgspec.structs.replace(queue.settings, **changes)
            if settings.requested_partitions != queue.settings.requested_partitions:
                raise InvalidRequest(
                    "requested_partitions is invalid",
                    f"'{queue_name}' has {queue.settings.requested_partitions}; the number cannot be changed by an update",
                )
            check_settings(settings, self._host.catalog, self._limits)
            return await self._replace(queue, settings=settings)

    async def pause_queue(self, queue_name: str, produce: bool | None, reserve: bool | None) -> Queue:
        """Pause (True), resume (False) or leave (None) each of the two ways."""
        async with self._changing:
            queue = self.queue(queue_name)
            return await self._replace(
                queue,
                produce_paused=queue.produce_paused if produce is None else produce,
                reserve_paused=queue.reserve_paused if reserve is None else reserve,
            )

    async def _replace(self, queue: Queue, **changes: Any) -> Queue:
        changed = msgspec.structs.replace(queue, updated_at_ms=self.clock.now_ms(), **changes)
        await self._host.catalog.replace(changed)
        self._host.update(changed)
        _log.info("queue changed", queue=queue.name)
        return changed

    async def delete_queue(self, queue_name: str, force: bool) -> None:
        async with self._changing:
            self.queue(queue_name)
            for other in self._host.catalog.all():
                if other.settings.dead_queue == queue_name:
                    raise Conflict("queue is in use", f"it is the dead queue of '{other.name}'")
            if not force:
                await self._check_empty(queue_name)
            await self.remove(queue_name)

    async def remove(self, queue_name: str) -> None:
        """Within `changing`: delete a queue with all it holds."""
        await self._host.catalog.delete(self.queue(queue_name))
        await self._host.shut(queue_name)
        await self._host.burial.bury()
        _log.info("queue deleted", queue=queue_name)

    async def _check_empty(self, queue_name: str) -> None:
        """From here on the queue takes nothing, unless it turns out that it is not empty."""
        logical_queues = self._host.logical_queues(queue_name)
        await asyncio.gather(*(logical_queue.freeze() for logical_queue in logical_queues))
        partitions = [each for logical_queue in logical_queues for each in logical_queue.stats().partitions]
        unknown = [each.partition for each in partitions if each.state != Status.AVAILABLE]
        count = sum(each.total + each.scheduled + each.outbox for each in partitions)
        if not unknown and not count:
            return
        for logical_queue in logical_queues:
            logical_queue.thaw()
        if unknown:
            details = f"what partition {unknown[0]} of '{queue_name}' holds is not known now; use force to delete it"
            raise Conflict("queue may not be empty", details)
        raise Conflict("queue is not empty", f"'{queue_name}' holds {count} items; use force to delete them")

    async def list_queues(self, pivot: str, limit: int, namespace: str) -> list[Queue]:
        """In the order of names, from the pivot on."""
        found = (
            queue
            for queue in self._host.catalog.all()
            if queue.name >= pivot and (not namespace or queue.settings.namespace == namespace)
        )
        return [queue for queue, _ in zip(found, range(limit), strict=False)]

    def queue(self, queue_name: str) -> Queue:
        return self._host.catalog.get(queue_name)

    async def queue_stats(self, queue_name: str) -> QueueStats:
        logical_queues = self._host.logical_queues(queue_name)
        return QueueStats(queue_name=queue_name, logical_queues=[each.stats() for each in logical_queues])

    async def clear_queue(self, queue_name: str, items: bool, scheduled: bool, destructive: bool) -> None:
        for logical_queue in self._host.logical_queues(queue_name):
            await cold_path.clear(logical_queue, items=items, scheduled=scheduled, destructive=destructive)

    async def reload_queue(self, queue_name: str) -> None:
        for logical_queue in self._host.logical_queues(queue_name):
            await cold_path.reload(logical_queue)

    # Inspection.

    async def list_items(self, queue_name: str, partition: int, pivot: str, limit: int) -> list[ItemView]:
        return await cold_path.list_items(self._host.owner(queue_name, partition), partition, pivot, limit)

    async def list_scheduled(self, queue_name: str, partition: int, pivot: str, limit: int) -> list[ItemView]:
        return await cold_path.list_scheduled(self._host.owner(queue_name, partition), partition, pivot, limit)

    async def import_items(self, queue_name: str, partition: int, items: list[Item]) -> list[ItemView]:
        return await cold_path.import_items(self._host.owner(queue_name, partition), partition, items)

    async def delete_items(self, queue_name: str, partition: int, ids: Sequence[str]) -> None:
        await cold_path.delete_items(self._host.owner(queue_name, partition), partition, ids)

    # Backends.

    def backends(self) -> list[BackendReport]:
        """Each with the number of partitions that queues have there."""
        counts = Counter(place.backend for queue in self._host.catalog.all() for place in queue.partitions)
        return [
            BackendReport(name, backend.driver, backend.affinity, counts[name])
            for name, backend in self._host.backends.items()
        ]

    def backend(self, name: str) -> Backend:
        return self._host.backends[name]

    async def health(self) -> Mapping[str, Health]:
        """The health of each backend by its name; a backend is not well while a partition on it fails."""
        backends = dict(self._host.backends)
        reports = await asyncio.gather(*map(_health, backends.values()))
        report = dict(zip(backends, reports, strict=True))
        for name, failing in self._host.failing().items():
            if name in report and report[name].ok:
                report[name] = Health(ok=False, details=f"{failing} partitions cannot be used")
        return report

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[Host]:
        """Nobody else makes, changes or deletes queues within."""
        async with self._changing:
            yield self._host

    def update_limits(self, limits: Limits) -> None:
        self._limits = limits
        self._host.update_limits(limits)


async def _health(backend: Backend) -> Health:
    """One that does not answer is not well."""
    try:
        async with asyncio.timeout(_HEALTH_PATIENCE_S):
            return await backend.health()
    except TimeoutError:
        return Health(ok=False, details=f"it did not answer within {_HEALTH_PATIENCE_S:.0f} s")
    except StorageError as error:
        return Health(ok=False, details=str(error))
