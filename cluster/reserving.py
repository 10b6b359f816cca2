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
from typing import Any, Protocol

import structlog

from cluster.messages import Hungry, Message, Ready
from cluster.routes import Route
from querator.clock import Clock, Timer
from querator.errors import QueratorError, RetryRequest, TimedOut
from querator.logical_queue import LogicalQueue
from querator.requests import Reservation, Reserve

_ELSEWHERE_MS = 200  # that a reserve may wait at another instance which had items a moment ago
_LATE_MS = 1_000  # that a reserve may be late at most, wherever it is
_AGAIN_MS = 20  # before a reserve that met a moving partition looks again
_REMIND_MS = 1_000  # after which hunger is told again, in case that it was not heard

_log = structlog.get_logger(__name__)


class Asking(Protocol):
    """As much of `Peers` as is needed here."""

    def ask(self, instance: str, call: str, arguments: tuple[object, ...], timeout_ms: int) -> asyncio.Future[Any]: ...
    def tell(self, instance: str, message: Message) -> None: ...


Source = LogicalQueue | str  # a logical queue here, or another instance


class _Reserve:
    """One reserve, and where it is just now."""

    __slots__ = (
        "batch_size",
        "client_id",
        "deadline_ms",
        "future",
        "last",
        "lease_timeout_ms",
        "queue_name",
        "source",
        "step",
        "timer",
    )

    def __init__(self, queue_name: str, asked: Reserve) -> None:
        self.queue_name = queue_name
        self.batch_size = asked.batch_size
        self.client_id = asked.client_id
        self.deadline_ms = asked.deadline_ms
        self.lease_timeout_ms = asked.lease_timeout_ms
        self.future: asyncio.Future[Reservation] = asked.future
        self.source: Source | None = None
        self.step: asyncio.Future[Any] | None = None  # what the source is asked
        self.timer: Timer | None = None
        self.last: Timer | None = None  # when it is answered in any case


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
        self._steps: set[asyncio.Future[Any]] = set()  # of all reserves
        self._refusal: Callable[[], QueratorError] | None = None  # of reserves that would wait, once nobody may

    # Reserves of this instance's callers.

    def reserve(
        self, queue_name: str, batch_size: int, client_id: str, timeout_ms: int, lease_timeout_ms: int
    ) -> asyncio.Future[Reservation]:
        self._route(queue_name)
        future: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()
        deadline_ms = self._clock.now_ms() + timeout_ms
        self._add(queue_name, Reserve(deadline_ms, future, batch_size, client_id, lease_timeout_ms))
        return future

    def adopt(self, queue_name: str, asked: Reserve) -> bool:
        """A reserve that waited with a logical queue which is leaving goes on here; False if it does already."""
        if self._refusal is not None or asked.future in self._steps:
            return False
        self._add(queue_name, asked)
        return True

    def _add(self, queue_name: str, asked: Reserve) -> None:
        reserve = _Reserve(queue_name, asked)
        latest_ms = reserve.deadline_ms + _LATE_MS
        reserve.last = self._clock.call_at(latest_ms, lambda: _refuse(reserve, TimedOut(Reserve.late)))
        reserve.future.add_done_callback(lambda _: self._leave(reserve))
        self._begin(reserve)

    def waiting(self, queue_name: str) -> int:
        """How many wait at this instance."""
        return len(self._waiting.get(queue_name, ()))

    def stop(self, refusal: Callable[[], QueratorError]) -> None:
        """Nobody waits any longer; those that are elsewhere just now do not when they come back."""
        self._refusal = refusal
        if self._reminder is not None:
            self._reminder.cancel()
        for reserves in list(self._waiting.values()):
            for reserve in list(reserves):
                _refuse(reserve, refusal())

    def _begin(self, reserve: _Reserve) -> None:
        """Go where items are, or wait."""
        if self._refusal is not None:
            _refuse(reserve, self._refusal())
            return
        if reserve.deadline_ms <= self._clock.now_ms():
            _refuse(reserve, TimedOut("no items were ready"))
            return
        try:
            route = self._route(reserve.queue_name)
        except RetryRequest:
            self._wait(reserve, None)
            return
        except QueratorError as error:
            _refuse(reserve, error)
            return
        self._wait(reserve, next((each for each in route.here if each.ready()), next(iter(route.here), None)))
        if not route.here and not reserve.future.done():
            self._tell_hunger(reserve.queue_name, route)

    def _wait(self, reserve: _Reserve, here: LogicalQueue | None) -> None:
        """Join those that wait, and those that wait with a logical queue."""
        self._waiting.setdefault(reserve.queue_name, OrderedDict())[reserve] = None
        if here is None:
            reserve.timer = self._clock.call_at(reserve.deadline_ms, lambda: self._again(reserve))
            return
        left_ms = max(1, reserve.deadline_ms - self._clock.now_ms())
        try:
            step = here.reserve(reserve.batch_size, reserve.client_id, left_ms, reserve.lease_timeout_ms)
        except RetryRequest:
            self._later(reserve)
        else:
            self._take_step(reserve, here, step)

    def _go(self, reserve: _Reserve, instance: str) -> None:
        """Ask another instance, which said that it has items."""
        self._stop_step(reserve)
        self._waiting[reserve.queue_name].pop(reserve, None)
        left_ms = min(_ELSEWHERE_MS, max(1, reserve.deadline_ms - self._clock.now_ms()))
        arguments = (reserve.queue_name, reserve.batch_size, reserve.client_id, left_ms, reserve.lease_timeout_ms)
        try:
            step = self._peers.ask(instance, "reserve", arguments, left_ms)
        except RetryRequest:
            self._later(reserve)
        else:
            self._take_step(reserve, instance, step)

    def _take_step(self, reserve: _Reserve, source: Source, step: asyncio.Future[Any]) -> None:
        reserve.source = source
        reserve.step = step
        self._steps.add(step)
        step.add_done_callback(lambda done: self._came(reserve, source, done))

    def _came(self, reserve: _Reserve, source: Source, step: asyncio.Future[Reservation | None]) -> None:
        """A step has ended. What was leased by one that nobody waits for any more is given back."""
        self._steps.discard(step)
        error = None if step.cancelled() else step.exception()
        result = None if step.cancelled() or error is not None else step.result()
        if reserve.step is not step or reserve.future.done():
            if result is not None:
                self._give_back(reserve.queue_name, source, result)
            return
        reserve.step = None
        if result is not None:
            reserve.future.set_result(result)
            if isinstance(source, str):  # a logical queue here says itself when it has had its turn
                self.balance(reserve.queue_name)
        elif step.cancelled() or (isinstance(error, RetryRequest) and not isinstance(error, TimedOut)):
            self._later(reserve)
        elif error is None or isinstance(error, TimedOut):
            self._begin(reserve)
        else:
            _refuse(reserve, error)

    def _give_back(self, queue_name: str, source: Source, given: Reservation) -> None:
        ids = [item_id for run in given.runs for item_id in run.ids()]
        try:
            if isinstance(source, LogicalQueue):
                source.take_back(given.partition, ids)
            else:
                asked = self._peers.ask(source, "take_back", (queue_name, given.partition, ids), _ELSEWHERE_MS)
                asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        except QueratorError as error:
            _log.info("items stay leased for nobody", queue=queue_name, error=error.message)

    def _later(self, reserve: _Reserve) -> None:
        """Something is moving: look again in a moment."""
        if not reserve.future.done():
            self._waiting.setdefault(reserve.queue_name, OrderedDict())[reserve] = None
            when_ms = min(reserve.deadline_ms, self._clock.now_ms() + _AGAIN_MS)
            reserve.timer = self._clock.call_at(when_ms, lambda: self._again(reserve))

    def _again(self, reserve: _Reserve) -> None:
        reserve.timer = None
        if not reserve.future.done() and reserve.step is None:
            self._begin(reserve)

    def _leave(self, reserve: _Reserve) -> None:
        """It is answered, or its caller has gone."""
        self._stop_step(reserve)
        if reserve.last is not None:
            reserve.last.cancel()
        reserves = self._waiting.get(reserve.queue_name)
        if reserves is not None:
            reserves.pop(reserve, None)
            if not reserves:
                del self._waiting[reserve.queue_name]

    def _stop_step(self, reserve: _Reserve) -> None:
        """What is asked elsewhere is awaited nonetheless: only its answer tells what has to be given back."""
        if reserve.timer is not None:
            reserve.timer.cancel()
            reserve.timer = None
        step, reserve.step = reserve.step, None
        if step is not None and isinstance(reserve.source, LogicalQueue):
            step.cancel()

    # Hunger.

    def look_again(self, queue_name: str) -> None:
        """Where the logical queues are has changed: those that wait with none may find one here now."""
        for reserve in list(self._waiting.get(queue_name, ())):
            if reserve.step is None:
                self._stop_step(reserve)
                self._begin(reserve)

    def _starving(self, route: Route) -> list[_Reserve]:
        """Those that wait and for whom nothing was ready here; not those who are just being served."""
        unfilled = {future for each in route.here for future in each.unfilled()}
        waiting = self._waiting.get(route.queue_name, ())
        return [reserve for reserve in waiting if reserve.step is None or reserve.step in unfilled]

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

    def _remind(self) -> None:
        self._reminder = None
        for queue_name in list(self._waiting):
            self.balance(queue_name)

    def hear_ready(self, instance: str, message: Ready) -> None:
        """Another instance has items, and nobody there for them. It has to be told of hunger again from now on."""
        self._told_at_ms.pop((message.queue_name, instance), None)
        try:
            route = self._route(message.queue_name)
        except QueratorError:
            return
        items = message.items
        for reserve in self._starving(route):
            if items > 0:
                self._go(reserve, instance)
                items -= reserve.batch_size

    # The hunger of others.

    def hear_hungry(self, instance: str, message: Hungry) -> None:
        self._hungry[message.queue_name][instance] = message.reserves
        self.balance(message.queue_name)

    def balance(self, queue_name: str) -> None:
        """Bring those who wait and what is ready together: in another logical queue here, or elsewhere."""
        hungry, waiting = self._hungry.get(queue_name), self._waiting.get(queue_name)
        if not hungry and not waiting:
            return
        try:
            route = self._route(queue_name)
        except QueratorError:
            self._hungry.pop(queue_name, None)
            return
        starving = self._starving(route) if waiting else []
        if starving and len(route.here) > 1:
            starving = self._move_here(route, starving)
        if starving:
            self._tell_hunger(queue_name, route)
        elif hungry:
            self._offer_to(queue_name, route, hungry)

    def _move_here(self, route: Route, starving: list[_Reserve]) -> list[_Reserve]:
        """To another logical queue of this instance that has items. Returns those for whom there are none."""
        left = iter(starving)
        for logical_queue in route.here:
            items = 0 if logical_queue.unfilled() else logical_queue.ready()
            while items > 0 and (reserve := next(left, None)) is not None:
                self._stop_step(reserve)
                self._wait(reserve, logical_queue)
                items -= reserve.batch_size
        return list(left)

    def _offer_to(self, queue_name: str, route: Route, hungry: OrderedDict[str, int]) -> None:
        items = sum(each.ready() for each in route.here)
        while items > 0 and hungry:
            instance, reserves = hungry.popitem(last=False)
            try:
                self._peers.tell(instance, Ready(queue_name, items))
            except RetryRequest as error:
                _log.debug("items were not offered", queue=queue_name, instance=instance, error=error.message)
            else:
                items -= reserves

    def reserve_now(
        self, queue_name: str, batch_size: int, client_id: str, timeout_ms: int, lease_timeout_ms: int
    ) -> asyncio.Future[Reservation] | None:
        """For another instance: from what is ready here; None if nothing is."""
        ready = next((each for each in self._route(queue_name).here if each.ready()), None)
        return None if ready is None else ready.reserve(batch_size, client_id, timeout_ms, lease_timeout_ms)


def _refuse(reserve: _Reserve, error: BaseException) -> None:
    if not reserve.future.done():
        reserve.future.set_exception(error)
