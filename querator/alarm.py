"""An alarm that rings once, at the earliest instant that was asked for since it last rang."""

from __future__ import annotations

from collections.abc import Callable

from querator.clock import Clock, Timer
from querator.items import NEVER_MS


class Alarm:
    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._timer: Timer | None = None
        self._at_ms = NEVER_MS

    def set(self, when_ms: int) -> None:
        """Ring at this instant, if not earlier."""
        if when_ms < self._at_ms:
            self.cancel()
            self._at_ms = when_ms
            self._timer = self._clock.call_at(when_ms, self._rang)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._at_ms = NEVER_MS

    def _rang(self) -> None:
        self._timer = None
        self._at_ms = NEVER_MS
        self._ring()
