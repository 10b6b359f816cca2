"""Which instance of a cluster a call had best go to: the owner of what it is about, as far as that is known.

Any instance takes any call, so that a wrong guess costs a hop or an attempt, and nothing else. A server says in its
answers (`Querator-Owner`) when another one owns what was asked; that is when the client begins to ask for routes. They
are asked for beside the calls, which never wait for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from yarl import URL

from querator import errors, wire
from querator.transport import Address, Transport, parse_address

_AGE_S: Final = 30.0  # after which a route that is used is asked for again
_SOONEST_S: Final = 1.0  # between two questions about one queue
_DOWN_S: Final = 5.0  # that an instance is left alone which could not be reached
_MAX_QUEUES: Final = 1000

_log = logging.getLogger("querator.client")

Ask = Callable[[str], Awaitable[wire.ClusterRouteAnswer]]


class _Route:
    """The owners of one queue; none if it is not worth while to go to them."""

    __slots__ = ("asked_at_s", "by_partition", "owners", "turn")

    def __init__(self, asked_at_s: float) -> None:
        self.asked_at_s = asked_at_s
        self.owners: list[Address] = []
        self.by_partition: dict[int, Address] = {}
        self.turn = 0

    def forget(self, owner: Address) -> None:
        self.owners = [each for each in self.owners if each != owner]
        self.by_partition = {number: each for number, each in self.by_partition.items() if each != owner}


class Way:
    """Of one call, about a partition or about any."""

    __slots__ = ("_partition", "_queue_name", "_routes")

    def __init__(self, routes: Routes, queue_name: str, partition: int | None) -> None:
        self._routes = routes
        self._queue_name = queue_name
        self._partition = partition

    def first(self) -> Address | None:
        return self._routes.choose(self._queue_name, self._partition)

    def hint(self) -> None:
        self._routes.hear(self._queue_name)

    def failed(self, address: Address, error: errors.QueratorError) -> None:
        self._routes.leave(self._queue_name, address, error)


class Routes:
    """``always`` asks for the route of every queue that is used; else only once a server has hinted at another one."""

    def __init__(self, transport: Transport, ask: Ask, *, always: bool) -> None:
        self._transport = transport
        self._ask = ask
        self._always = always
        self._routes: dict[str, _Route] = {}
        self._down_until_s: dict[Address, float] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def choose(self, queue_name: str, partition: int | None) -> Address | None:
        """The owner of the partition, or each owner in turn; None if it is not known."""
        route = self._routes.get(queue_name)
        if route is None:
            if self._always:
                self._refresh(queue_name)
            return None
        now_s = asyncio.get_running_loop().time()
        if now_s - route.asked_at_s > _AGE_S and (route.owners or self._always):
            self._refresh(queue_name)
        if partition is not None:
            owner = route.by_partition.get(partition)
            return owner if owner is not None and self._is_up(owner, now_s) else None
        route.turn += 1
        owners = [owner for owner in route.owners if self._is_up(owner, now_s)] if self._down_until_s else route.owners
        return owners[route.turn % len(owners)] if owners else None

    def hear(self, queue_name: str) -> None:
        """A server says that another one owns what it was asked: what is known is wrong, or nothing is."""
        route = self._routes.get(queue_name)
        if route is None or asyncio.get_running_loop().time() - route.asked_at_s >= _SOONEST_S:
            self._refresh(queue_name)

    def leave(self, queue_name: str, owner: Address, error: errors.QueratorError) -> None:
        """A call that went straight to an owner failed there."""
        if isinstance(error, errors.TransportError | errors.Stopping):
            now_s = asyncio.get_running_loop().time()
            still = {each: until_s for each, until_s in self._down_until_s.items() if until_s > now_s}
            self._down_until_s = {**still, owner: now_s + _DOWN_S}
        elif not isinstance(error, errors.Moved):
            return
        route = self._routes.get(queue_name)
        if route is not None:
            route.forget(owner)
        self.hear(queue_name)

    def _is_up(self, owner: Address, now_s: float) -> bool:
        return self._down_until_s.get(owner, 0.0) <= now_s

    def _refresh(self, queue_name: str) -> None:
        if self._closed or queue_name in self._asking:
            return
        loop = asyncio.get_running_loop()
        route = self._routes.get(queue_name)
        if route is None:
            self._keep(queue_name, _Route(loop.time()))
        else:
            route.asked_at_s = loop.time()
        task = self._asking[queue_name] = loop.create_task(self._find_out(queue_name))
        task.add_done_callback(lambda _: self._asking.pop(queue_name, None))

    async def _find_out(self, queue_name: str) -> None:
        try:
            answer = await self._ask(queue_name)
        except errors.QueratorError as error:
            _log.debug("owners of '%s' are not known: %s", queue_name, error)
            return
        route = _Route(asyncio.get_running_loop().time())
        if len(answer.addresses) > 1:
            self._transport.learn(answer.addresses)
            found = [(each.partition, _read(each.address)) for each in answer.partitions]
            route.by_partition = {partition: owner for partition, owner in found if owner is not None}
            route.owners = list(dict.fromkeys(route.by_partition.values()))
        self._keep(queue_name, route)

    def _keep(self, queue_name: str, route: _Route) -> None:
        if queue_name not in self._routes and len(self._routes) >= _MAX_QUEUES:
            del self._routes[next(iter(self._routes))]
        self._routes[queue_name] = route


def can_go_direct(addresses: Sequence[str]) -> bool:
    """Not if something stands between the client and the instances, as their own addresses then mean little."""
    plain = URL("http://x")
    return all(
        url.scheme == plain.scheme and url.path == plain.path and url.user is None
        for url in map(parse_address, addresses)
    )


def _read(address: str) -> Address | None:
    try:
        return parse_address(address) if address else None
    except ValueError:
        return None
