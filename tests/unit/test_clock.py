"""Time that never goes back."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from querator.clock import ManualClock, SystemClock, sleep_ms

MS = 1_000_000
START_MS = 1_800_000_000_000


class Hands:
    """A wall clock and a steady clock, both turned by the test."""

    def __init__(self) -> None:
        self.wall_ns = START_MS * MS
        self.steady_ns = 5 * MS
        self.clock = SystemClock(lambda: self.wall_ns, lambda: self.steady_ns)

    def turn(self, by_ms: int, step_ms: int = 0) -> int:
        """Time passes, and somebody sets the wall clock; what the clock says after."""
        self.steady_ns += by_ms * MS
        self.wall_ns += (by_ms + step_ms) * MS
        return self.clock.now_ms()


def test_the_clock_follows_the_wall() -> None:
    """Without steps it says what the wall says."""
    hands = Hands()
    assert [hands.turn(by_ms) - START_MS for by_ms in (0, 1, 1000, 3_600_000)] == [0, 1, 1001, 3_601_001]


def test_a_step_forward_is_approached_and_reached() -> None:
    """A wall clock set forward by a minute neither jumps leases over their deadline nor is ignored."""
    hands = Hands()
    assert hands.turn(0, step_ms=60_000) == START_MS
    assert hands.turn(1000) == START_MS + 1100
    hands.turn(1_000_000)
    assert hands.clock.now_ms() == hands.wall_ns // MS


def test_a_step_back_slows_the_clock_and_is_reached() -> None:
    """A wall clock set back by a minute is waited for, without standing still."""
    hands = Hands()
    assert hands.turn(0, step_ms=-60_000) == START_MS
    assert hands.turn(1000) == START_MS + 900
    hands.turn(1_000_000)
    assert hands.clock.now_ms() == hands.wall_ns // MS


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(-(10**8), 10**8)), max_size=60))
def test_the_clock_never_goes_back_and_never_jumps(turns: list[tuple[int, int]]) -> None:
    """Whatever is done to the wall clock, time passes at 0.9 to 1.1 of its real speed."""
    hands = Hands()
    before = hands.clock.now_ms()
    for by_ms, step_ms in turns:
        after = hands.turn(by_ms, step_ms)
        assert by_ms * 0.9 - 1 <= after - before <= by_ms * 1.1 + 1
        assert after >= before
        before = after


async def test_timers_of_the_manual_clock_fire_in_order_and_once() -> None:
    """Advancing fires what comes due, each at its own instant, and not what was cancelled."""
    clock = ManualClock(1000)
    fired: list[tuple[str, int]] = []
    clock.call_at(1020, lambda: fired.append(("b", clock.now_ms())))
    clock.call_at(1010, lambda: fired.append(("a", clock.now_ms())))
    clock.call_at(1015, lambda: fired.append(("never", clock.now_ms()))).cancel()
    clock.advance(9)
    assert fired == []
    clock.advance(20)
    assert fired == [("a", 1010), ("b", 1020)]
    assert clock.now_ms() == 1029


async def test_a_sleep_ends_by_its_clock_and_leaves_no_timer() -> None:
    """It waits for the instant, and a cancelled one does not fire later."""
    clock = ManualClock()
    sleeping = asyncio.ensure_future(sleep_ms(clock, 10))
    cancelled = asyncio.ensure_future(sleep_ms(clock, 10))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    clock.advance(10)
    await asyncio.wait_for(sleeping, 10)
    assert cancelled.cancelled()


async def test_the_system_clock_calls_back_at_or_after_the_instant() -> None:
    """Never before its time, and never from within the call that asks for it."""
    clock = SystemClock()
    done = asyncio.get_running_loop().create_future()
    when_ms = clock.now_ms() + 5
    clock.call_at(when_ms, lambda: done.set_result(clock.now_ms()))
    assert not done.done()
    assert await asyncio.wait_for(done, 10) >= when_ms
