"""An election: of all candidates for a key, the one whose value is there leads. Made of a lease, a watch and
compare-and-set alone, and so the same on every coordinator.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import structlog

from cluster.coordinator import Change, CoordinationError, Coordinator, Lease, Snapshot
from querator.clock import Clock, sleep_ms

_log = structlog.get_logger(__name__)

_AGAIN_MS = 200  # after something went wrong


class Election:
    """`start` before, `stop` after, and that before the coordinator is closed.

    ``elected`` is set while this candidate leads and ``deposed`` while it does not; ``leader`` is the value of who leads
    as far as is known. Whoever writes as the leader adds `proof` to what the transaction expects: the one who leads
    without knowing that it does not lead any more is then refused.
    """

    def __init__(self, coordinator: Coordinator, *, key: str, value: bytes, ttl_ms: int, clock: Clock) -> None:
        self.elected = asyncio.Event()
        self.deposed = asyncio.Event()
        self.deposed.set()
        self.leader: bytes | None = None
        self._coordinator = coordinator
        self._key = key
        self._value = value
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._lease: Lease | None = None
        self._revision = 0  # of our own entry, while we lead
        self._task: asyncio.Task[None] | None = None

    @property
    def is_leader(self) -> bool:
        """By the clock: false before another one can lead, even if this process was paused."""
        return self._revision > 0 and self._lease is not None and self._lease.remaining_ms() > 0

    def proof(self) -> dict[str, int]:
        """An expectation that holds only while this candidate leads, and never if it does not."""
        return {self._key: self._revision or -1}

    def start(self) -> None:
        assert self._task is None, "started once"
        self._task = asyncio.create_task(self._run(), name=f"election-{self._key}")

    async def stop(self) -> None:
        """Resign, so that the next one leads at once. May be called twice."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._stand_under_one_lease()
            except CoordinationError as error:
                _log.warning("election was interrupted", key=self._key, error=str(error))
            await sleep_ms(self._clock, _AGAIN_MS)

    async def _stand_under_one_lease(self) -> None:
        lease = self._lease = await self._coordinator.grant(self._ttl_ms)
        standing = asyncio.create_task(self._stand(lease))
        losing = asyncio.create_task(lease.lost.wait())
        try:
            done, _ = await asyncio.wait({standing, losing}, return_when=asyncio.FIRST_COMPLETED)
            self._depose()
            if standing in done:
                standing.result()
        finally:
            self._depose()
            standing.cancel()
            losing.cancel()
            await asyncio.gather(standing, losing, return_exceptions=True)
            await self._let_go(lease)

    async def _let_go(self, lease: Lease) -> None:
        try:
            await lease.revoke()
        except CoordinationError as error:
            _log.warning("lease was not revoked", lease=lease.id, error=str(error))  # it ends by itself

    async def _stand(self, lease: Lease) -> None:
        async with aclosing(self._coordinator.watch(self._key)) as watch:
            async for event in watch:
                if self._take_note(event) and self.leader is None:
                    await self._campaign(lease)

    def _take_note(self, event: Snapshot | Change) -> bool:
        """Whether it is about the key, and not older than our own entry."""
        if event.revision < self._revision or (isinstance(event, Change) and event.key != self._key):
            return False
        held: tuple[bytes | None, int] = (None, event.revision)
        if isinstance(event, Change):
            held = event.value, event.revision
        else:
            held = next(((each.value, each.revision) for each in event.entries if each.key == self._key), held)
        self.leader, revision = held
        if revision != self._revision:
            self._depose()
        return True

    async def _campaign(self, lease: Lease) -> None:
        revision = await self._coordinator.transact(expected={self._key: 0}, puts={self._key: self._value}, lease=lease)
        if revision is not None:  # otherwise the watch tells who was faster
            self._revision = revision
            self.leader = self._value
            self.deposed.clear()
            self.elected.set()
            _log.info("leads", key=self._key, revision=revision)

    def _depose(self) -> None:
        if self._revision:
            self._revision = 0
            self.elected.clear()
            self.deposed.set()
            _log.info("leads no longer", key=self._key)
