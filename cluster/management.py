"""Making, changing and deleting queues. Names and bounds are checked here, for every door alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from cluster.answers import FROZEN_MS
from cluster.assignment import Assignment
from cluster.coordinator import CoordinationError
from cluster.host import Host
from cluster.membership import Membership
from cluster.peers import Peers
from cluster.placement import spread
from cluster.settings import check_settings
from querator.clock import sleep_ms
from querator.errors import Conflict, InvalidRequest, QueratorError, RetryRequest
from querator.limits import Limits
from querator.member import Status
from querator.queues import PartitionPlace, PartitionStats, Queue, QueueSettings
from querator.waist import StorageError

if TYPE_CHECKING:
    from cluster.router import Router

_log = structlog.get_logger(__name__)

_OPEN_PATIENCE_MS = 10_000  # with instances that open a new queue
_LOOK_EVERY_MS = 5
_CREATE_TIMEOUT_MS = 10_000


class Management:
    def __init__(self, host: Host, router: Router, membership: Membership, peers: Peers, limits: Limits) -> None:
        self._host = host
        self._router = router
        self._membership = membership
        self._peers = peers
        self._limits = limits
        self._changing = asyncio.Lock()  # queues are made, changed and deleted one at a time

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[Host]:
        """Nobody else makes, changes or deletes queues here within."""
        async with self._changing:
            try:
                yield self._host
            except CoordinationError as error:
                raise RetryRequest("coordination does not answer", str(error)) from error

    def update_limits(self, limits: Limits) -> None:
        self._limits = limits
        self._host.update_limits(limits)

    # Creating.

    async def create_queue(self, settings: QueueSettings) -> Queue:
        async with self.changing():
            return await self.create(settings)

    async def create(self, settings: QueueSettings) -> Queue:
        """Within `changing`."""
        catalog = self._host.catalog
        check_settings(settings, catalog, self._limits)
        if catalog.find(settings.queue_name) is not None:
            raise Conflict("queue already exists", f"a queue is named '{settings.queue_name}'")
        backends = spread(settings.requested_partitions, self._affinities())
        async with self._host.burial.making(backends, self._membership.lease) as places:
            await self._create_partitions(places)
            now_ms = self._host.clock.now_ms()
            queue = Queue(settings=settings, partitions=places, created_at_ms=now_ms, updated_at_ms=now_ms)
            await catalog.create(queue)
        _log.info("queue created", queue=queue.name, partitions=len(places))
        await self._until_open(queue)
        return catalog.get(queue.name)

    def _affinities(self) -> dict[str, float]:
        """Of all backends that an instance of the cluster reaches; what this one says of its own holds."""
        affinities: dict[str, float] = {}
        for member in self._membership.members.values():
            affinities.update(member.backends)
        affinities.update({name: backend.affinity for name, backend in self._host.backends.items()})
        return affinities

    async def _create_partitions(self, places: Sequence[PartitionPlace]) -> None:
        for place in places:
            if place.backend in self._host.backends:
                try:
                    await self._host.backends[place.backend].create(place.uid)
                except StorageError as error:
                    details = f"'{place.backend}' takes no partitions now: {error}"
                    raise RetryRequest("backend is failing", details) from error
            else:
                able = [name for name, member in self._membership.members.items() if member.reaches(place.backend)]
                if not able:
                    raise RetryRequest("backend is failing", f"no instance reaches '{place.backend}' now")
                await self._peers.ask(able[0], "create_partition", (place.backend, place.uid), _CREATE_TIMEOUT_MS)

    async def _until_open(self, queue: Queue) -> None:
        """Wait for the leader to assign the queue, for the owners to open it and the others to know it; not for ever."""
        give_up_at_ms = self._host.clock.now_ms() + _OPEN_PATIENCE_MS
        while self._host.clock.now_ms() < give_up_at_ms:
            if await self._is_open(queue.name):
                return
            await sleep_ms(self._host.clock, _LOOK_EVERY_MS)
        _log.warning("queue is not open yet", queue=queue.name)

    async def _is_open(self, queue_name: str) -> bool:
        assignment = self._host.catalog.assignment(queue_name)
        owners = {place.instance for place in assignment.logical_queues}
        if not owners or not self._host.is_open(queue_name, assignment.epoch):
            return False
        others = [member for member in self._membership.members if member != self._host.me]
        opened = await asyncio.gather(*(self._is_open_at(each, queue_name, assignment.epoch) for each in others))
        return all(each for name, each in zip(others, opened, strict=True) if each is not None or name in owners)

    async def _is_open_at(self, instance: str, queue_name: str, epoch: int) -> bool | None:
        """None if it does not say."""
        try:
            return bool(await self._peers.ask(instance, "is_open", (queue_name, epoch), _CREATE_TIMEOUT_MS))
        except QueratorError:
            return None

    # Changing.

    async def update_queue(self, queue_name: str, changes: Mapping[str, Any]) -> Queue:
        """``changes`` maps fields of `QueueSettings` to new values; what is not named stays as it is."""
        async with self.changing():
            queue = self._router.queue(queue_name)
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
        async with self.changing():
            queue = self._router.queue(queue_name)
            return await self._replace(
                queue,
                produce_paused=queue.produce_paused if produce is None else produce,
                reserve_paused=queue.reserve_paused if reserve is None else reserve,
            )

    async def _replace(self, queue: Queue, **changes: Any) -> Queue:
        changed = msgspec.structs.replace(queue, updated_at_ms=self._host.clock.now_ms(), **changes)
        await self._host.catalog.replace(changed)
        _log.info("queue changed", queue=queue.name)
        return changed

    # Deleting.

    async def delete_queue(self, queue_name: str, force: bool) -> None:
        async with self.changing():
            self._router.queue(queue_name)
            for other in self._host.catalog.all():
                if other.settings.dead_queue == queue_name:
                    raise Conflict("queue is in use", f"it is the dead queue of '{other.name}'")
            if force:
                await self.remove(queue_name)
            else:
                await self._remove_if_empty(queue_name)

    async def remove(self, queue_name: str, owners: Assignment | None = None) -> None:
        """Within `changing`: delete a queue with all it holds. With ``owners``, only while these have it."""
        await self._host.catalog.delete(self._router.queue(queue_name), owners)
        await self._host.settle(queue_name)
        await self._host.burial.bury()
        _log.info("queue deleted", queue=queue_name)

    async def _remove_if_empty(self, queue_name: str) -> None:
        """From here on the queue takes nothing, unless it turns out that it is not empty or cannot be deleted."""
        owners = self._host.catalog.assignment(queue_name)
        try:
            await self._check_empty(queue_name, owners)
            await self.remove(queue_name, owners)
        except BaseException:
            if self._host.catalog.find(queue_name) is not None:
                await asyncio.shield(self._thaw(queue_name))
            raise

    async def _check_empty(self, queue_name: str, owners: Assignment) -> None:
        give_up_at_ms = self._host.clock.now_ms() + FROZEN_MS // 2
        try:
            answers = await self._router.at_all(queue_name, "freeze")
        except RetryRequest as error:
            raise _unknown(f"what '{queue_name}' holds") from error
        partitions = [each for stats in answers for one in stats for each in one.partitions]
        told = sorted((each.partition, each.epoch) for each in partitions)
        owned = sorted((number, place.epoch) for place in owners.logical_queues for number in place.partitions)
        everything = [place.number for place in self._router.queue(queue_name).partitions]
        is_late = self._host.clock.now_ms() > give_up_at_ms
        if is_late or told != owned or [number for number, _ in told] != sorted(everything):
            raise _unknown(f"what all partitions of '{queue_name}' hold")
        _check_counts(queue_name, partitions)

    async def _thaw(self, queue_name: str) -> None:
        try:
            await self._router.at_all(queue_name, "thaw")
        except QueratorError as error:
            _log.warning("queue may still refuse requests", queue=queue_name, error=error.message)


def _check_counts(queue_name: str, partitions: Sequence[PartitionStats]) -> None:
    unknown = [each.partition for each in partitions if each.state != Status.AVAILABLE]
    if unknown:
        raise _unknown(f"what partition {unknown[0]} of '{queue_name}' holds")
    count = sum(each.total + each.scheduled + each.outbox for each in partitions)
    if count:
        raise Conflict("queue is not empty", f"'{queue_name}' holds {count} items; use force to delete them")


def _unknown(what: str) -> Conflict:
    return Conflict("queue may not be empty", f"{what} is not known now; use force to delete it")
