"""Reserves of queues whose items are in more than one place: they follow the items, also while they wait.

A reserve that finds nothing waits at this instance: with a logical queue here, if there is one, and in any case in a
list. The instances that own the other logical queues are told that somebody is hungry. Whichever of them has items that
nobody there wants says so, once, and a waiting reserve goes there. If others were faster it comes back to the list, and
hunger is told again: there is at most one question under way for each that waits, and none while nothing happens.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Protocol

import structlog

from cluster.messages import Hungry, Message, Ready
from cluster.routes import Route
from querator.clock import Clock, Timer
from querator.errors import QueratorError, RetryRequest, TimedOut
from querator.logical_queue import LogicalQueue
from querator.requests import Reservation

_ELSEWHERE_MS = 200  # that a reserve may wait at another instance which had items a moment ago
_AGAIN_MS = 20  # before a reserve that met a moving partition looks again
_REMIND_MS = 1_000  # after which hunger is told again, in case that it was not heard

_log = structlog.get_logger(__name__)


class Asking(Protocol):
    """As much of `Peers` as is needed here."""

    def ask(
        self, instance: str, call: str, arguments: tuple[object, ...], timeout_ms: int
    ) -> asyncio.Future[Reservation | None]: ...
    def tell(self, instance: str, message: Message) -> None: ...


class _Reserve:
    """One reserve, and where it is just now."""

    __slots__ = ("batch_size", "client_id", "deadline_ms", "elsewhere", "future", "lease_timeout_ms", "step", "timer")

    def __init__(self, batch_size: int, client_id: str, deadline_ms: int, lease_timeout_ms: int) -> None:
        self.batch_size = batch_size
        self.client_id = client_id
        self.deadline_ms = deadline_ms
        self.lease_timeout_ms = lease_timeout_ms
        self.future: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()
        self.step: asyncio.Future[Reservation | None] | asyncio.Future[Reservation] | None = None
        self.elsewhere = False  # the step is at another instance
        self.timer: Timer | None = None


class Reserving:
    """``route`` gives the present route of a queue, and raises what a caller is to be told if there is none."""

    def __init__(self, route: Callable[[str], Route], peers: Asking, clock: Clock) -> None:
        self._route = route
        self._peers = peers
        self._clock = clock
        self._waiting: dict[str, OrderedDict[_Reserve, None]] = {}  # by queue: those that are not elsewhere
        self._hungry: dict[str, OrderedDict[str, int]] = defaultdict(OrderedDict)  # by queue: other instances
        self._told_at_ms: dict[tuple[str, str], int] = {}  # queue and instance → when it was told of our hunger
        self._reminder: Timer | None = None

    # Reserves of this instance's callers.

    def reserve(
        self, queue_name: str, batch_size: int, client_id: str, timeout_ms: int, lease_timeout_ms: int
    ) -> asyncio.Future[Reservation]:
        self._route(queue_name)
        deadline_ms = self._clock.now_ms() + timeout_ms
        reserve = _Reserve(batch_size, client_id, deadline_ms, lease_timeout_ms)
        reserve.future.add_done_callback(lambda _: self._leave(queue_name, reserve))
        self._begin(queue_name, reserve)
        return reserve.future

    def waiting(self, queue_name: str) -> int:
        """How many wait at this instance."""
        return len(self._waiting.get(queue_name, ()))

    def stop(self, refusal: Callable[[], QueratorError]) -> None:
        """Nobody waits any longer."""
        if self._reminder is not None:
            self._reminder.cancel()
        for reserves in list(self._waiting.values()):
            for reserve in list(reserves):
                self._refuse(reserve, refusal())

    def _begin(self, queue_name: str, reserve: _Reserve) -> None:
        """Go where items are, or wait."""
        left_ms = reserve.deadline_ms - self._clock.now_ms()
        if left_ms <= 0:
            self._refuse(reserve, TimedOut("no items were ready"))
            return
        try:
            route = self._route(queue_name)
        except RetryRequest:
            self._wait(queue_name, reserve, None, left_ms)
            return
        except QueratorError as error:
            self._refuse(reserve, error)
            return
        ready = next((each for each in route.here if each.ready()), None)
        self._wait(queue_name, reserve, ready or next(iter(route.here), None), left_ms)
        if ready is None and not reserve.future.done():
            self._tell_hunger(queue_name, route)

    def _wait(self, queue_name: str, reserve: _Reserve, here: LogicalQueue | None, left_ms: int) -> None:
        self._waiting.setdefault(queue_name, OrderedDict())[reserve] = None
        reserve.elsewhere = False
        if here is None:
            reserve.timer = self._clock.call_at(reserve.deadline_ms, lambda: self._again(queue_name, reserve))
            return
        try:
            step = here.reserve(reserve.batch_size, reserve.client_id, left_ms, reserve.lease_timeout_ms)
        except RetryRequest:
            self._later(queue_name, reserve)
            return
        reserve.step = step
        step.add_done_callback(lambda done: self._came(queue_name, reserve, done))

    def _go(self, queue_name: str, reserve: _Reserve, instance: str) -> None:
        """Ask another instance, which said that it has items."""
        self._stop_step(reserve)
        self._waiting[queue_name].pop(reserve, None)
        left_ms = min(_ELSEWHERE_MS, max(1, reserve.deadline_ms - self._clock.now_ms()))
        arguments = (queue_name, reserve.batch_size, reserve.client_id, left_ms, reserve.lease_timeout_ms)
        try:
            step = self._peers.ask(instance, "reserve", arguments, left_ms)
        except RetryRequest:
            self._later(queue_name, reserve)
            return
        reserve.step = step
        reserve.elsewhere = True
        step.add_done_callback(lambda done: self._came(queue_name, reserve, done))

    def _came(
        self,
        queue_name: str,
        reserve: _Reserve,
        step: asyncio.Future[Reservation | None] | asyncio.Future[Reservation],
    ) -> None:
        """A step has ended."""
        if reserve.step is not step:
            if not step.cancelled():
                step.exception()
            return
        reserve.step = None
        if step.cancelled():
            self._later(queue_name, reserve)
            return
        error = step.exception()
        if error is None:
            result = step.result()
            if result is not None:
                self._waiting.get(queue_name, OrderedDict()).pop(reserve, None)
                if not reserve.future.done():
                    reserve.future.set_result(result)
                self._still_hungry(queue_name)
            else:
                self._begin(queue_name, reserve)
        elif isinstance(error, TimedOut):
            self._begin(queue_name, reserve)
        elif isinstance(error, RetryRequest):
            self._later(queue_name, reserve)
        else:
            self._refuse(reserve, error)

    def _later(self, queue_name: str, reserve: _Reserve) -> None:
        """Something is moving: look again in a moment."""
        if reserve.future.done():
            return
        self._waiting.setdefault(queue_name, OrderedDict())[reserve] = None
        when_ms = min(reserve.deadline_ms, self._clock.now_ms() + _AGAIN_MS)
        reserve.timer = self._clock.call_at(when_ms, lambda: self._again(queue_name, reserve))

    def _again(self, queue_name: str, reserve: _Reserve) -> None:
        reserve.timer = None
        if not reserve.future.done() and reserve.step is None:
            self._begin(queue_name, reserve)

    def _leave(self, queue_name: str, reserve: _Reserve) -> None:
        """It is answered, or its caller has gone."""
        self._stop_step(reserve)
        reserves = self._waiting.get(queue_name)
        if reserves is not None:
            reserves.pop(reserve, None)
            if not reserves:
                del self._waiting[queue_name]

    def _stop_step(self, reserve: _Reserve) -> None:
        if reserve.timer is not None:
            reserve.timer.cancel()
            reserve.timer = None
        step, reserve.step = reserve.step, None
        if step is not None:
            step.cancel()

    def _refuse(self, reserve: _Reserve, error: BaseException) -> None:
        if not reserve.future.done():
            reserve.future.set_exception(error)

    # Hunger.

    def _tell_hunger(self, queue_name: str, route: Route) -> None:
        now_ms = self._clock.now_ms()
        for instance in route.instances:
            told_at_ms = self._told_at_ms.get((queue_name, instance))
            if told_at_ms is None or now_ms - told_at_ms >= _REMIND_MS:
                self._told_at_ms[queue_name, instance] = now_ms
                try:
                    self._peers.tell(instance, Hungry(queue_name, self.waiting(queue_name)))
                except RetryRequest as error:
                    _log.debug("hunger was not told", queue=queue_name, instance=instance, error=error.message)
        if self._reminder is None:
            self._reminder = self._clock.call_at(now_ms + _REMIND_MS, self._remind)

    def _still_hungry(self, queue_name: str) -> None:
        if self.waiting(queue_name):
            try:
                self._tell_hunger(queue_name, self._route(queue_name))
            except QueratorError as error:
                _log.debug("hunger was not told", queue=queue_name, error=error.message)

    def _remind(self) -> None:
        self._reminder = None
        for queue_name in list(self._waiting):
            self._still_hungry(queue_name)

    def hear_ready(self, instance: str, message: Ready) -> None:
        """Another instance has items, and nobody there for them. It has to be told of hunger again from now on."""
        queue_name = message.queue_name
        self._told_at_ms.pop((queue_name, instance), None)
        items = message.items
        for reserve in list(self._waiting.get(queue_name, ())):
            if items <= 0:
                break
            self._go(queue_name, reserve, instance)
            items -= reserve.batch_size

    # The hunger of others.

    def hear_hungry(self, instance: str, message: Hungry) -> None:
        self._hungry[message.queue_name][instance] = message.reserves
        self.offer(message.queue_name)

    def offer(self, queue_name: str) -> None:
        """Items may be ready here that nobody here waits for: tell those who do."""
        hungry = self._hungry.get(queue_name)
        if not hungry:
            return
        try:
            route = self._route(queue_name)
        except QueratorError:
            del self._hungry[queue_name]
            return
        items = sum(each.ready() for each in route.here)
        while items > 0 and hungry:
            instance, reserves = hungry.popitem(last=False)
            try:
                self._peers.tell(instance, Ready(queue_name, items))
            except RetryRequest as error:
                _log.debug("items were not offered", queue=queue_name, instance=instance, error=error.message)
            items -= reserves

    def reserve_now(
        self, queue_name: str, batch_size: int, client_id: str, timeout_ms: int, lease_timeout_ms: int
    ) -> asyncio.Future[Reservation] | None:
        """For another instance: from what is ready here; None if nothing is."""
        ready = next((each for each in self._route(queue_name).here if each.ready()), None)
        return None if ready is None else ready.reserve(batch_size, client_id, timeout_ms, lease_timeout_ms)
