"""Time: instants in UTC milliseconds that never go back, and timers.

All of the core asks a `Clock`, so that a test or a simulation can turn time itself (`ManualClock`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol

# How much faster or slower than real time our time may run while it follows a wall clock that was stepped.
_SLEW = 10
_NS_PER_MS = 1_000_000


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970 in UTC. Must never be smaller than what an earlier call returned."""

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        """Call back once at or soon after the instant; never synchronously from within this call."""


class SystemClock:
    """Follows the wall clock, but neither jumps nor goes back when somebody sets it.

    A wall clock that was stepped is approached at a tenth of the passing time: leases do not expire in a heap, and
    the order of ids holds.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns
        self._now_ns = wall_ns()
        self._now_ms = self._now_ns // _NS_PER_MS
        self._read_at_ns = steady_ns()

    def now_ms(self) -> int:
        steady_ns = self._steady_ns()
        passed_ns = steady_ns - self._read_at_ns
        if passed_ns < _NS_PER_MS // 2:  # asked for every request
            return self._now_ms
        slew_ns = passed_ns // _SLEW
        drift_ns = self._wall_ns() - (self._now_ns + passed_ns)
        self._now_ns += passed_ns + max(-slew_ns, min(slew_ns, drift_ns))
        self._read_at_ns = steady_ns
        self._now_ms = self._now_ns // _NS_PER_MS
        return self._now_ms

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        delay_s = max(0, when_ms - self.now_ms() + 1) / 1000
        return asyncio.get_running_loop().call_later(delay_s, callback)


class _ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Stands still until `advance` is called, which fires the timers that come due, in order."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms
        self._timers: list[tuple[int, int, _ManualTimer]] = []
        self._sequence = itertools.count()

    def now_ms(self) -> int:
        return self._now_ms

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (when_ms, next(self._sequence), timer))
        return timer

    def advance(self, by_ms: int) -> None:
        until_ms = self._now_ms + by_ms
        while self._timers and self._timers[0][0] <= until_ms:
            when_ms, _, timer = heapq.heappop(self._timers)
            self._now_ms = max(self._now_ms, when_ms)
            if timer.callback is not None:
                timer.callback()
        self._now_ms = until_ms


async def sleep_ms(clock: Clock, delay_ms: int) -> None:
    """Wait by this clock."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ring() -> None:
        if not done.done():
            done.set_result(None)

    timer = clock.call_at(clock.now_ms() + delay_ms, ring)
    try:
        await done
    finally:
        timer.cancel()
