"""Who is in the cluster: every instance registers itself under a lease, and sees the others.

instances/<id>      Member, for as long as the instance keeps its lease
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from cluster.coordinator import CoordinationError, Coordinator, Lease
from cluster.mirror import Mirror
from querator.clock import Clock, sleep_ms

PREFIX = "instances/"
_AGAIN_MS = 500  # before a registration that failed is tried again

_log = structlog.get_logger(__name__)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """An instance as the others see it."""

    id: str
    host: str  # instances of one host reach the same files
    addresses: tuple[str, ...]  # for clients: HOST:PORT
    peer_address: str = ""  # for other instances; empty if it talks to none
    version: str
    started_at_ms: int
    backends: dict[str, float]  # those that it can reach, and their affinity
    fleeting: tuple[str, ...] = ()  # those among them whose partitions would be lost if another instance had them
    draining: bool = False  # it is about to stop, and wants to own nothing

    def reaches(self, backend: str) -> bool:
        return backend in self.backends

    def keeps(self, backend: str) -> bool:
        """Whether partitions there must stay with this instance as long as it lives."""
        return backend in self.fleeting


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Member).decode


class Membership:
    """`start` before, `stop` after. An instance whose lease was lost goes on serving, and registers again."""

    def __init__(
        self, coordinator: Coordinator, me: Member, *, ttl_ms: int, clock: Clock, changed: Callable[[str], None]
    ) -> None:
        self.me = me
        self.members = Mirror(coordinator, PREFIX, _decode, changed)
        self.ttl_ms = ttl_ms
        self.lease: Lease | None = None
        self.registered = asyncio.Event()  # under a lease that is not known to be lost
        self._coordinator = coordinator
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self._register()
        await self.members.load()
        self._tasks = [asyncio.create_task(self.members.follow()), asyncio.create_task(self._stay())]
        for task in self._tasks:
            task.add_done_callback(_tell_error)

    async def update(self, me: Member) -> None:
        """Tell the others something new about this instance. Raises `CoordinationError`, and they may not know then."""
        before, self.me = self.me, me
        try:
            await self._write()
        except CoordinationError:
            self.me = before
            raise

    async def leave(self) -> None:
        """The others see at once that this instance is gone."""
        await self._end_tasks()
        self.registered.clear()
        if self.lease is not None:
            try:
                await self.lease.revoke()
            except CoordinationError as error:
                _log.warning("instance could not leave the cluster", error=str(error))
            self.lease = None

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _register(self) -> None:
        self.lease = await self._coordinator.grant(self.ttl_ms)
        await self._write()
        self.registered.set()

    async def _write(self) -> None:
        key = self.members.key(self.me.id)
        revision = await self._coordinator.transact(expected={}, puts={key: _encode(self.me)}, lease=self.lease)
        assert revision is not None, "nothing was expected"
        self.members.put(self.me.id, self.me, revision)

    async def _stay(self) -> None:
        """Register again whenever the lease is lost."""
        while True:
            if self.lease is not None:
                await self.lease.lost.wait()
            self.registered.clear()
            _log.warning("instance lost its place in the cluster", instance=self.me.id)
            while not self.registered.is_set():
                try:
                    await self._register()
                except CoordinationError as error:
                    _log.info("instance cannot register", instance=self.me.id, error=str(error))
                    await sleep_ms(self._clock, _AGAIN_MS)
            _log.info("instance is in the cluster again", instance=self.me.id)


def _tell_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("instance does not follow the cluster any more", exc_info=error)
