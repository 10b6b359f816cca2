"""The burial: partitions that no queue has any more, or never had, are dropped; if not now, then later."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog

from cluster.catalog import Catalog
from cluster.coordinator import CoordinationError, Lease
from querator.clock import Clock, sleep_ms
from querator.queues import PartitionPlace
from querator.waist import Backend, StorageError

_log = structlog.get_logger(__name__)

_PAUSE_FIRST_MS = 200
_PAUSE_LAST_MS = 30_000


class Burial:
    """`run` in the background, `bury` whenever it should happen at once."""

    def __init__(self, catalog: Catalog, backends: Mapping[str, Backend], clock: Clock) -> None:
        self._catalog = catalog
        self._backends = backends
        self._clock = clock
        self._wanted = asyncio.Event()
        self._given_up: list[tuple[PartitionPlace, ...]] = []  # and still kept from being dropped

    @asynccontextmanager
    async def making(self, backends: list[str], lease: Lease | None) -> AsyncIterator[tuple[PartitionPlace, ...]]:
        """New places for the queue that is made within; if that fails, whatever was made there is dropped."""
        places = await self._catalog.new_places(backends, lease)
        try:
            yield places
        except BaseException:
            self._given_up.append(places)
            self._wanted.set()
            await asyncio.shield(self._let_go())
            raise

    async def _let_go(self) -> None:
        """Let places be dropped of which no queue was made. If the coordination is away, `bury` does it later."""
        while self._given_up:
            places = self._given_up.pop()
            try:
                await self._catalog.give_up(places)
            except CoordinationError as error:
                _log.warning("doomed partitions cannot be let go of now", error=str(error))
                self._given_up.append(places)
                return

    async def bury(self) -> bool:
        """Drop what can be dropped now. False if something has to wait, which `run` then does again."""
        await self._let_go()
        by_backend: dict[str, list[int]] = defaultdict(list)
        for uid, backend in await self._catalog.doomed():
            if backend in self._backends:  # else it is for another instance to drop
                by_backend[backend].append(uid)
        done = all(await asyncio.gather(*(self._drop(*of_backend) for of_backend in by_backend.items())))
        done = done and not self._given_up
        if not done:
            self._wanted.set()
        return done

    async def _drop(self, backend_name: str, uids: list[int]) -> bool:
        """Drop partitions of one backend, up to its first failure."""
        for uid in uids:
            if not await self._catalog.condemn(uid):
                continue
            try:
                await self._backends[backend_name].drop(uid)
            except StorageError as error:
                _log.warning("partition cannot be dropped now", partition_uid=uid, error=str(error))
                return False
            await self._catalog.buried(uid)
        return True

    def soon(self) -> None:
        """Something may be droppable that was not."""
        self._wanted.set()

    async def run(self) -> None:
        """Bury for ever, with growing pauses while something has to wait; ends by being cancelled.

        What other instances doom on backends that they do not reach is found by looking now and then.
        """
        pause_ms = _PAUSE_FIRST_MS
        while True:
            timer = self._clock.call_at(self._clock.now_ms() + _PAUSE_LAST_MS, self._wanted.set)
            await self._wanted.wait()
            timer.cancel()
            await sleep_ms(self._clock, pause_ms)
            self._wanted.clear()
            try:
                done = await self.bury()
            except CoordinationError as error:
                _log.warning("doomed partitions cannot be listed now", error=str(error))
                self._wanted.set()
                done = False
            pause_ms = _PAUSE_FIRST_MS if done else min(_PAUSE_LAST_MS, 2 * pause_ms)
