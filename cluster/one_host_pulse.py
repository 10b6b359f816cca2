"""Tells the watches of one process that the shared file has changed: looks at it often, while somebody watches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import structlog

from cluster.lease import CoordinationError
from querator.clock import Clock, sleep_ms

_log = structlog.get_logger(__name__)

_PAUSE_MS = 25
_PAUSE_AFTER_ERROR_MS = 500


class Pulse:
    """``look`` answers the file's last revision."""

    def __init__(self, look: Callable[[], Awaitable[int]], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._last = 0
        self._moved = asyncio.Event()
        self._watching = 0
        self._task: asyncio.Task[None] | None = None
        self.closed = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """For as long as this lasts, the file is looked at."""
        self._watching += 1
        if self._task is None and not self.closed:
            self._task = asyncio.create_task(self._beat(), name="one-host-pulse")
        try:
            yield
        finally:
            self._watching -= 1

    async def after(self, revision: int) -> None:
        """Until a later revision was seen, or until this is closed."""
        while self._last <= revision and not self.closed:
            await self._moved.wait()

    def saw(self, revision: int) -> None:
        if revision > self._last:
            self._last = revision
            self._wake()

    async def close(self) -> None:
        self.closed = True
        self._wake()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def _beat(self) -> None:
        try:
            while self._watching:
                await sleep_ms(self._clock, await self._look_once())
        finally:
            self._task = None

    async def _look_once(self) -> int:
        """Returns how long to wait until the next look."""
        try:
            self.saw(await self._look())
        except CoordinationError as error:
            _log.warning("coordination cannot be read", error=str(error))
            return _PAUSE_AFTER_ERROR_MS
        return _PAUSE_MS
