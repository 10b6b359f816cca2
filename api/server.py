"""The server: listens, lets connections in by the fast door, sweeps out the slow ones, and stops all doors in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

import structlog

from api.calls import ReloadConfig, make_calls
from api.fast_door import Connection
from api.full_door import FullDoor, FullServer
from api.hall import Hall
from api.heads import Heads
from cluster.router import Router
from querator.errors import QueratorError
from querator.limits import Limits

if TYPE_CHECKING:
    from api.grpc_door import GrpcDoor
    from querator.telemetry import Tracing

_BACKLOG = 1024
_MAX_SWEEP_S = 1.0
_MIN_SWEEP_S = 0.02

# Before an instance closes its doors it refuses for a moment, so that busy clients hear of it and go to others. A request
# that meets a closing connection is lost without an answer, and its sender cannot know whether it was done.
_FAREWELL_S = 0.2

_SHUTDOWN_S = 0.1  # everything has ended by then; 0 would mean no limit to aiohttp

Address = tuple[str, int]

_log = structlog.get_logger("querator.api")


class Server:
    """One instance's doors. ``fast_door=False`` serves everything through aiohttp.

    ``redirect`` sends callers of HTTP to the owner unless they ask to be passed on (docs/api.md, the cluster).
    """

    def __init__(
        self,
        *,
        router: Router,
        limits: Limits | None = None,
        reload_config: ReloadConfig | None = None,
        fast_door: bool = True,
        log_requests: bool = False,
        tracing: Tracing | None = None,
        redirect: bool = False,
    ) -> None:
        self._limits = limits = limits if limits is not None else Limits()
        calls = make_calls(router=router, limits=limits, reload_config=reload_config)
        self._hall = Hall(
            router=router,
            calls=calls,
            limits=limits,
            log_requests=log_requests,
            tracing=tracing,
            redirect=redirect,
        )
        self._reload_config = reload_config
        self._heads = Heads(calls)
        self._fast_door = fast_door
        self._full_door = FullDoor(self._hall)
        self._full_server: FullServer | None = None
        self._grpc_door: GrpcDoor | None = None
        self._listeners: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._stopped: asyncio.Task[None] | None = None
        self.grpc_address: Address | None = None

    async def start(
        self, listen: Sequence[Address], grpc_listen: Address | None = None, *, shared: bool = False
    ) -> list[Address]:
        """Listen on every address; gives those that were bound (port 0 is any free one). All or none.

        Other processes may listen at the same addresses if they are ``shared``, and take some of the connections.
        `grpc_address` is then where gRPC is offered, if it is.
        """
        loop = asyncio.get_running_loop()
        self._full_server = FullServer(self._full_door)
        bound: list[Address] = []
        try:
            for host, port in listen:
                listener = await loop.create_server(
                    self._connect, host, port, backlog=_BACKLOG, reuse_port=shared or None
                )
                self._listeners.append(listener)
                bound.extend(socket.getsockname()[:2] for socket in listener.sockets)
            if grpc_listen is not None:
                self.grpc_address = await self._start_grpc(grpc_listen, shared)
        except (OSError, QueratorError):
            self._close_listeners()
            raise
        self._sweep()
        return bound

    async def _start_grpc(self, listen: Address, shared: bool) -> Address:
        from api.grpc_door import GrpcDoor  # whoever does not want gRPC does not load it

        self._grpc_door = GrpcDoor(self._hall, self._full_door.report)
        return await self._grpc_door.start(listen, shared=shared)

    async def stop(self) -> None:
        """Answer waiting reserves, let what runs finish within the grace, close. Stopping twice is stopping once."""
        if self._stopped is None:
            self._stopped = asyncio.get_running_loop().create_task(self._stop())
        await asyncio.shield(self._stopped)

    def log_requests(self, on: bool) -> None:
        """Whether each request is an event at debug."""
        self._hall.log_requests = on

    def update_limits(self, limits: Limits) -> None:
        """They hold from the next request on, also on connections that are open."""
        self._limits = self._hall.limits = limits
        fresh = make_calls(router=self._hall.router, limits=limits, reload_config=self._reload_config)
        for path, call in self._hall.calls.items():
            call.follow(fresh[path])
        self._heads.forget()

    def _connect(self) -> Connection:
        assert self._full_server is not None
        return Connection(self._hall, self._heads, self._full_server, fast=self._fast_door)

    def _sweep(self) -> None:
        now_s = monotonic()
        self._hall.tell_time()
        for connection in list(self._hall.connections):
            connection.sweep(now_s)
        self._sweeper = asyncio.get_running_loop().call_later(self._sweep_every_s(), self._sweep)

    def _sweep_every_s(self) -> float:
        limits = self._limits
        shortest_s = min(limits.header_timeout_ms, limits.body_timeout_ms, limits.idle_timeout_ms) / 1000
        return max(_MIN_SWEEP_S, min(_MAX_SWEEP_S, shortest_s / 4))

    async def _stop(self) -> None:
        hall = self._hall
        hall.stopping = True
        hall.router.stop_waiting()
        if hall.router.sight.has_others:
            hall.farewell = True
            await asyncio.sleep(_FAREWELL_S)
            hall.farewell = False
        self._close_listeners()
        for connection in list(hall.connections):
            connection.stop()
        drained, _ = await asyncio.gather(self._drained(), self._stop_grpc())
        if not drained:
            _log.warning("requests were cut off", connections=len(hall.connections))
            for connection in list(hall.connections):
                connection.abort()
        await self._full_door.cut_off()
        if self._full_server is not None:
            await self._full_server.shutdown(timeout=_SHUTDOWN_S)
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _stop_grpc(self) -> None:
        if self._grpc_door is not None:
            await self._grpc_door.stop()

    async def _drained(self) -> bool:
        """Wait until the last connection has gone, for as long as the grace lasts."""
        drained = asyncio.Event()
        self._hall.on_empty(drained.set)
        try:
            async with asyncio.timeout(self._limits.stop_grace_ms / 1000):
                await drained.wait()
        except TimeoutError:
            return False
        return True

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
