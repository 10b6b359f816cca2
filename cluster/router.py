"""The way from a queue's name to what answers for it, here or on another instance. The API talks to this."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import structlog

from cluster.answers import Answers
from cluster.host import Host
from cluster.management import Management
from cluster.membership import Membership
from cluster.peers import Peers
from cluster.reserving import Reserving
from cluster.routes import Route
from cluster.sight import ClusterSight
from querator.clock import Clock
from querator.errors import NoSuchQueue, QueratorError, RetryRequest, Stopping
from querator.inspection import ItemView
from querator.items import Item
from querator.limits import Limits
from querator.observer import Observer
from querator.queues import LogicalQueueStats, Queue, QueueStats
from querator.relay import Entries
from querator.requests import Produced, Reservation, RetryItem, Scheduled
from querator.waist import Backend, Health, StorageError

_log = structlog.get_logger(__name__)

_HEALTH_PATIENCE_S = 5.0
_RARE_TIMEOUT_MS = 30_000  # of calls that are no caller's hot path
_TOTALS_TIMEOUT_MS = 2_000  # that one instance has to tell what it holds

T = TypeVar("T")


class BackendReport(NamedTuple):
    name: str
    driver: str
    affinity: float
    partitions: int


class Router:
    """The hot calls return a future, and raise at once what can be known at once."""

    def __init__(self, host: Host, peers: Peers, membership: Membership, limits: Limits) -> None:
        self._host = host
        self._peers = peers
        self._routes: dict[str, Route] = {}
        self.reserving = Reserving(self.route, peers, host.clock)
        self.management = Management(host, self, membership, peers, limits)
        self.sight = ClusterSight(host.catalog, membership)
        self._answers = Answers(host, self.reserving)
        peers.answer_with(self._answers)
        host.deliver = self._deliver
        host.changed = self.changed

    @property
    def clock(self) -> Clock:
        return self._host.clock

    @property
    def observer(self) -> Observer:
        return self._host.observer

    # Routes.

    def changed(self, queue_name: str) -> None:
        """The owners of a queue are not what they were."""
        self._routes.pop(queue_name, None)
        for logical_queue in self._host.logical_queues(queue_name):
            logical_queue.on_turn = partial(self.reserving.balance, queue_name)
            logical_queue.on_leave = partial(self.reserving.adopt, queue_name)
        self.reserving.look_again(queue_name)

    def route(self, queue_name: str) -> Route:
        route = self._routes.get(queue_name)
        if route is None:
            route = self._routes[queue_name] = self._find_route(queue_name)
        return route

    def _find_route(self, queue_name: str) -> Route:
        queue = self._host.catalog.find(queue_name)
        if queue is None:
            raise NoSuchQueue(queue_name)
        assignment = self._host.catalog.assignment(queue_name)
        here = self._host.logical_queues(queue_name)
        away = [place for place in assignment.logical_queues if place.instance != self._host.me]
        return Route(queue_name, [place.number for place in queue.partitions], here, away)

    # Hot calls: no coroutine, no task; cancel the future when the caller has gone.

    def produce(
        self, queue_name: str, items: list[Item], scheduled: list[Scheduled], size: int, timeout_ms: int
    ) -> asyncio.Future[Produced]:
        owner = self.route(queue_name).any()
        if isinstance(owner, str):
            return self._peers.ask(owner, "produce", (queue_name, items, scheduled, size, timeout_ms), timeout_ms)
        return owner.produce(items, scheduled, size, timeout_ms)

    def reserve(
        self, queue_name: str, batch_size: int, client_id: str, timeout_ms: int, lease_timeout_ms: int = 0
    ) -> asyncio.Future[Reservation]:
        alone = self.route(queue_name).alone
        if alone is not None:
            return alone.reserve(batch_size, client_id, timeout_ms, lease_timeout_ms)
        return self.reserving.reserve(queue_name, batch_size, client_id, timeout_ms, lease_timeout_ms)

    def complete(self, queue_name: str, partition: int, ids: list[str], timeout_ms: int) -> asyncio.Future[None]:
        owner = self.route(queue_name).owner(partition)
        if isinstance(owner, str):
            return self._peers.ask(owner, "complete", (queue_name, partition, ids, timeout_ms), timeout_ms)
        return owner.complete(partition, ids, timeout_ms)

    def retry(self, queue_name: str, partition: int, items: list[RetryItem], timeout_ms: int) -> asyncio.Future[None]:
        owner = self.route(queue_name).owner(partition)
        if isinstance(owner, str):
            return self._peers.ask(owner, "retry", (queue_name, partition, items, timeout_ms), timeout_ms)
        return owner.retry(partition, items, timeout_ms)

    def renew(
        self, queue_name: str, partition: int, ids: list[str], timeout_ms: int, lease_timeout_ms: int = 0
    ) -> asyncio.Future[int]:
        owner = self.route(queue_name).owner(partition)
        if isinstance(owner, str):
            arguments = (queue_name, partition, ids, timeout_ms, lease_timeout_ms)
            return self._peers.ask(owner, "renew", arguments, timeout_ms)
        return owner.renew(partition, ids, timeout_ms, lease_timeout_ms)

    async def _deliver(self, target: str, source_uid: int, entries: Entries) -> None:
        """The same source always meets the same partition, which knows what it took from there before."""
        queue = self._host.catalog.find(target)
        if queue is None:
            raise RetryRequest("queue is not open", f"'{target}' is deleted")
        partition = queue.partitions[source_uid % len(queue.partitions)].number
        await self._at_owner(target, partition, "deliver", (source_uid, entries))

    def stop_waiting(self) -> None:
        """The instance stops: reserves that wait are answered, and no new requests are taken."""
        self.reserving.stop(Stopping)
        self._host.stop_waiting()

    # What concerns one partition or all of a queue.

    async def _at_owner(self, queue_name: str, partition: int, call: str, arguments: tuple[Any, ...]) -> Any:
        owner = self.route(queue_name).owner(partition)
        return await self._at(owner if isinstance(owner, str) else "", call, (queue_name, partition, *arguments))

    def _at(
        self, instance: str, call: str, arguments: tuple[Any, ...], timeout_ms: int = _RARE_TIMEOUT_MS
    ) -> Awaitable[Any]:
        """Ask an instance, which may be this one (empty)."""
        if instance:
            return self._peers.ask(instance, call, arguments, timeout_ms)
        return self._answers.ask(self._host.me, call, arguments)

    async def at_all(self, queue_name: str, call: str, *arguments: Any) -> list[Any]:
        """Ask all instances that own something of a queue. Raises what the first that cannot answer says."""
        route = self.route(queue_name)
        instances = [*([""] if route.here else []), *route.instances]
        if not instances:
            raise route.unowned()
        return await asyncio.gather(*(self._at(each, call, (queue_name, *arguments)) for each in instances))

    def queue(self, queue_name: str) -> Queue:
        return self._host.catalog.get(queue_name)

    async def list_queues(self, pivot: str, limit: int, namespace: str) -> list[Queue]:
        """In the order of names, from the pivot on."""
        found = (
            queue
            for queue in self._host.catalog.all()
            if queue.name >= pivot and (not namespace or queue.settings.namespace == namespace)
        )
        return [queue for queue, _ in zip(found, range(limit), strict=False)]

    def local_stats(self, queue_name: str) -> QueueStats:
        """What this instance holds of a queue."""
        here = [each.stats() for each in self._host.logical_queues(queue_name)]
        return QueueStats(queue_name=queue_name, logical_queues=here)

    async def queue_stats(self, queue_name: str) -> QueueStats:
        """What all instances hold of a queue; those that do not answer in time are named as missing."""
        route = self.route(queue_name)
        answers = await asyncio.gather(*(self._stats_at(instance, queue_name) for instance in route.instances))
        missing = [name for name, answer in zip(route.instances, answers, strict=True) if answer is None]
        stats = [each.stats() for each in route.here]
        for answer in answers:
            stats.extend(answer or [])
        stats.sort(key=lambda each: each.partitions[0].partition if each.partitions else -1)
        return QueueStats(queue_name=queue_name, logical_queues=stats, missing=missing)

    async def _stats_at(self, instance: str, queue_name: str) -> list[LogicalQueueStats] | None:
        try:
            stats = await self._at(instance, "stats", (queue_name,), _TOTALS_TIMEOUT_MS)
        except QueratorError as error:
            _log.info("totals are not complete", queue=queue_name, instance=instance, error=error.message)
            return None
        return cast("list[LogicalQueueStats]", stats)

    async def clear_queue(self, queue_name: str, items: bool, scheduled: bool, destructive: bool) -> None:
        await self.at_all(queue_name, "clear", items, scheduled, destructive)

    async def reload_queue(self, queue_name: str) -> None:
        await self.at_all(queue_name, "reload")

    async def list_items(self, queue_name: str, partition: int, pivot: str, limit: int) -> list[ItemView]:
        return cast("list[ItemView]", await self._at_owner(queue_name, partition, "list_items", (pivot, limit)))

    async def list_scheduled(self, queue_name: str, partition: int, pivot: str, limit: int) -> list[ItemView]:
        return cast("list[ItemView]", await self._at_owner(queue_name, partition, "list_scheduled", (pivot, limit)))

    async def import_items(self, queue_name: str, partition: int, items: list[Item]) -> list[ItemView]:
        return cast("list[ItemView]", await self._at_owner(queue_name, partition, "import_items", (items,)))

    async def delete_items(self, queue_name: str, partition: int, ids: Sequence[str]) -> None:
        await self._at_owner(queue_name, partition, "delete_items", (list(ids),))

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

    # For those who go to the owner themselves.

    def is_partial(self, stats: QueueStats) -> bool:
        """Whether what some partitions hold is not told."""
        told = sum(len(each.partitions) for each in stats.logical_queues)
        return bool(stats.missing) or told < len(self.queue(stats.queue_name).partitions)

    def elsewhere(self, queue_name: str, partition: int | None = None) -> str:
        """Where clients reach the instance that has to be asked, for one partition or for any; empty if that is here."""
        route = self.route(queue_name)
        if partition is None and route.here:
            return ""
        owner = route.any() if partition is None else route.owner(partition)
        return self.sight.address(owner) if isinstance(owner, str) else ""


async def _health(backend: Backend) -> Health:
    """One that does not answer is not well."""
    try:
        async with asyncio.timeout(_HEALTH_PATIENCE_S):
            return await backend.health()
    except TimeoutError:
        return Health(ok=False, details=f"it did not answer within {_HEALTH_PATIENCE_S:.0f} s")
    except StorageError as error:
        return Health(ok=False, details=str(error))
