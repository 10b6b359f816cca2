"""One instance's part in the cluster: everything of this room, put together, started and stopped in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import msgspec
import structlog

from cluster.catalog import Catalog
from cluster.channel import Connect, Link, LinkLost
from cluster.coordinator import CoordinationError, Coordinator
from cluster.election import Election
from cluster.host import Host
from cluster.leader import Leader
from cluster.loads import PREFIX as LOADS
from cluster.loads import Demand, Reporter, decode_report
from cluster.membership import Member, Membership
from cluster.mirror import Mirror
from cluster.peers import Peers
from cluster.router import Router
from querator.clock import Clock, sleep_ms
from querator.errors import RequestFailed
from querator.limits import Limits
from querator.observer import Observer
from querator.waist import Backend

DEFAULT_LEASE_MS = 10_000
_LEADER = "leader"
_LOOK_EVERY_MS = 5
_PATIENCE_MS = 10_000  # with what is to be opened at the start

_log = structlog.get_logger(__name__)


async def no_network(address: str) -> Link:
    """How an instance connects that is alone."""
    raise LinkLost(f"there is no way to '{address}'")


class Participant:
    """`start`, perhaps `drain`, then `close`."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        me: Member,
        backends: Mapping[str, Backend],
        clock: Clock,
        rng: random.Random,
        limits: Limits,
        observer: Observer | None = None,
        connect: Connect = no_network,
        lease_ms: int = DEFAULT_LEASE_MS,
    ) -> None:
        self.catalog = Catalog(coordinator)
        self.membership = Membership(coordinator, me, ttl_ms=lease_ms, clock=clock, changed=self._member_changed)
        self.peers = Peers(self.membership.members, connect, clock)
        self.host = Host(
            me=me.id,
            catalog=self.catalog,
            backends=backends,
            clock=clock,
            rng=rng,
            limits=limits,
            observer=observer,
        )
        self.router = Router(self.host, self.peers, self.membership, limits)
        self.election = Election(coordinator, key=_LEADER, value=me.id.encode(), ttl_ms=lease_ms, clock=clock)
        self.router.sight.leader = self._leader_id
        self._loads = Mirror(coordinator, LOADS, decode_report)
        self._leader = Leader(
            catalog=self.catalog,
            membership=self.membership,
            election=self.election,
            demand=Demand(self._loads),
            clock=clock,
        )
        self._reporter = Reporter(self.host, self.router.reserving, self.membership, coordinator, clock)
        self._clock = clock
        self._limits = limits
        self._tasks: list[asyncio.Task[None]] = []
        self._buried = False  # what was doomed before the start, as far as it can be
        self.catalog.listen(self._queue_changed)

    def _leader_id(self) -> str:
        return (self.election.leader or b"").decode()

    def _queue_changed(self, queue_name: str) -> None:
        self.host.follow(queue_name)
        self.router.changed(queue_name)
        self._leader.look(queue_name)

    def _member_changed(self, instance: str) -> None:
        self.peers.members_changed(instance)
        self._leader.look()

    async def start(self, peer_address: str = "") -> None:
        """Join, and open what is assigned to this instance, as far as that can be opened now.

        ``peer_address`` is where the others reach it, which must be so already.
        """
        self.membership.me = msgspec.structs.replace(self.membership.me, peer_address=peer_address)
        try:
            await self.membership.start()
            await self.catalog.load()
        except CoordinationError as error:
            raise RequestFailed("coordination does not answer", str(error)) from error
        self._check_backends()
        self.election.start()
        for follower in (
            self.catalog.follow(),
            self._loads.follow(),
            self._leader.run(),
            self._reporter.run(),
            self._bury(),
        ):
            task = asyncio.create_task(follower)
            task.add_done_callback(_tell_error)
            self._tasks.append(task)
        await self._until_settled()

    def _check_backends(self) -> None:
        """A backend that is missing everywhere is a mistake in the configuration of the first that starts."""
        reached = {name for member in self.membership.members.values() for name in member.backends}
        for queue in self.catalog.all():
            for place in queue.partitions:
                if place.backend not in reached:
                    details = f"'{queue.name}' has a partition on '{place.backend}', which is not in the configuration"
                    raise RequestFailed("backend is missing", details)

    async def _bury(self) -> None:
        try:
            await self.host.burial.bury()
        except CoordinationError as error:
            _log.warning("doomed partitions cannot be listed now", error=str(error))
            self.host.burial.soon()
        self._buried = True
        await self.host.burial.run()

    async def _until_settled(self) -> None:
        """A backend that is down now delays this by a few seconds at most."""
        give_up_at_ms = self._clock.now_ms() + _PATIENCE_MS
        while not (self._buried and self._is_settled()) and self._clock.now_ms() < give_up_at_ms:
            await sleep_ms(self._clock, _LOOK_EVERY_MS)

    def _is_settled(self) -> bool:
        members = self.membership.members
        for queue in self.catalog.all():
            assignment = self.catalog.assignment(queue.name)
            if not assignment.logical_queues or not self.host.is_open(queue.name, assignment.epoch):
                return False
            if any(place.instance and members.get(place.instance) is None for place in assignment.logical_queues):
                return False
        return True

    async def update(self, addresses: tuple[str, ...] | None = None) -> None:
        """Tell the others what has changed here: the addresses, or what backends there are."""
        me = self.membership.me
        backends = {name: backend.affinity for name, backend in self.host.backends.items()}
        me = msgspec.structs.replace(me, backends=backends, addresses=addresses or me.addresses)
        if me != self.membership.me:
            await self.membership.update(me)

    async def drain(self) -> None:
        """Hand everything over to other instances, if there are any, for as long as the grace lasts."""
        others = [each for each in self.membership.members.values() if each.id != self.host.me and not each.draining]
        if not others:
            return
        try:
            await self.membership.update(msgspec.structs.replace(self.membership.me, draining=True))
        except CoordinationError as error:
            _log.warning("instance cannot hand over", error=str(error))
            return
        give_up_at_ms = self._clock.now_ms() + self._limits.stop_grace_ms
        while not self.host.owns_nothing() and self._clock.now_ms() < give_up_at_ms:
            await sleep_ms(self._clock, _LOOK_EVERY_MS)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.election.stop()
        await self.host.close()
        await self.membership.leave()
        await self.peers.close()


def _tell_error(task: asyncio.Task[None]) -> None:
    """None of them ends by itself, unless something is wrong that nobody foresaw."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("instance does not follow the cluster any more", exc_info=error)
