"""A lease of the coordination: what was written under it is there for as long as its holder keeps it alive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from querator.clock import Clock, SystemClock, sleep_ms

_log = structlog.get_logger(__name__)

# Parts of a lease's time: how often it is renewed, when a renewal that failed is tried again, and how long before its
# end it is given up. The last must cover the difference between two clocks, and what the holder does when it hears.
_RENEWALS = 4
_RETRIES = 20
_MARGIN = 5


class CoordinationError(Exception):
    """The coordinator cannot be reached or used; nothing is known to have changed."""


class LeaseLost(CoordinationError):
    def __init__(self, lease_id: int) -> None:
        super().__init__(f"the lease {lease_id} has ended")


def host_clock() -> Clock:
    """The time since the host started, the same for all its processes. Nobody can set it, so that it never slews."""
    return SystemClock(wall_ns=_since_boot_ns, steady_ns=_since_boot_ns)


def _since_boot_ns() -> int:
    """Unlike the monotonic clock this one goes on while the machine sleeps, as the leases elsewhere do."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """Made by `Coordinator.grant`, which keeps it alive.

    ``lost`` is set before what was written under the lease can be gone: when no renewal was answered for so long that
    only a safety margin is left, counted from the moment the last answered one was *sent*. A lost lease stays lost.
    """

    def __init__(
        self,
        *,
        lease_id: int,
        ttl_ms: int,
        sent_at_ms: int,
        clock: Clock,
        renew: Callable[[int, int], Awaitable[bool]],
        end: Callable[[int], Awaitable[None]],
    ) -> None:
        """``renew`` takes id and time-out, and answers whether the lease was still there. ``end`` takes the id."""
        self.id = lease_id
        self.ttl_ms = ttl_ms
        self.lost = asyncio.Event()
        self._clock = clock
        self._renew = renew
        self._end = end
        self._give_up_at_ms = self._until(sent_at_ms)
        self._timer = clock.call_at(self._give_up_at_ms, self._look)
        self._keeping: asyncio.Task[None] = asyncio.create_task(self._keep(), name=f"lease-{lease_id}")

    def remaining_ms(self) -> int:
        """How long what was written under it is sure to be there, by the clock and not by timers: exact after a pause
        of the whole process, when ``lost`` was not yet set.
        """
        return 0 if self.lost.is_set() else max(0, self._give_up_at_ms - self._clock.now_ms())

    async def revoke(self) -> None:
        """End it now, with all that was written under it. If that fails it ends by itself, as it is not kept."""
        await self.abandon()
        await self._end(self.id)

    async def abandon(self) -> None:
        """Keep it no longer: it is lost here, and ends at the coordinator when its time is over."""
        self._lose()
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)

    async def _keep(self) -> None:
        pause_ms = self.ttl_ms // _RENEWALS
        while not self.lost.is_set():
            await sleep_ms(self._clock, pause_ms)
            sent_at_ms = self._clock.now_ms()
            try:
                alive = await self._renew(self.id, self.ttl_ms // _RENEWALS)
            except CoordinationError as error:
                _log.warning("lease was not renewed", lease=self.id, left_ms=self.remaining_ms(), error=str(error))
                pause_ms = self.ttl_ms // _RETRIES
                continue
            pause_ms = self.ttl_ms // _RENEWALS
            if alive and not self.lost.is_set():
                self._give_up_at_ms = self._until(sent_at_ms)
            else:
                self._lose()

    def _until(self, sent_at_ms: int) -> int:
        return sent_at_ms + self.ttl_ms - self.ttl_ms // _MARGIN

    def _look(self) -> None:
        """Renewals only move the end; the timer looks where it is now."""
        if self.remaining_ms() > 0:
            self._timer = self._clock.call_at(self._give_up_at_ms, self._look)
        else:
            self._lose()

    def _lose(self) -> None:
        self._timer.cancel()
        self.lost.set()
