"""Wires: what goes to a server goes through one, and can be held up or broken there.

A silent wire is a network that drops everything: connections stay, and nothing comes through until it is open again. A
broken one resets its connections and refuses new ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path

_READ_BYTES = 65_536
_HOST = "127.0.0.1"

Whose = Callable[[int, int], str]  # the ports of both ends of a connection → who has made it


class Flow(Enum):
    OPEN = "open"
    SILENT = "silent"
    BROKEN = "broken"


class Wire:
    """`start` before, `close` after. ``whose`` tells the callers apart, where there are several."""

    def __init__(self, port: int, whose: Whose = lambda _near, _far: "") -> None:
        self.target = port
        self.port = 0
        self._whose = whose
        self._flows: dict[str, Flow] = {}
        self._changed = asyncio.Condition()
        self._calls: dict[asyncio.Task[None], str] = {}
        self._server: asyncio.Server

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._take, _HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def address(self) -> str:
        return f"{_HOST}:{self.port}"

    async def let(self, flow: Flow, caller: str = "") -> None:
        """From now on, for what this caller sends and is sent."""
        async with self._changed:
            self._flows[caller] = flow
            self._changed.notify_all()
        if flow is Flow.BROKEN:
            for task, whose in self._calls.items():
                if whose == caller:
                    task.cancel()

    async def close(self) -> None:
        self._server.close()
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._server.wait_closed()

    def _flow(self, caller: str) -> Flow:
        return self._flows.get(caller, Flow.OPEN)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        caller = self._whose(writer.get_extra_info("peername")[1], self.port)
        self._calls[task] = caller
        try:
            if self._flow(caller) is not Flow.BROKEN:
                await self._carry(caller, reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # an end has gone, or the wire was broken: both ends are told by the reset below
        finally:
            del self._calls[task]
            writer.transport.abort()

    async def _carry(self, caller: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._until_open(caller)
        far_reader, far_writer = await asyncio.open_connection(_HOST, self.target)
        ways = [self._pump(caller, reader, far_writer), self._pump(caller, far_reader, writer)]
        pumps = [asyncio.create_task(way) for way in ways]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            far_writer.transport.abort()

    async def _pump(self, caller: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                await self._until_open(caller)
                writer.write(data)
                await writer.drain()

    async def _until_open(self, caller: str) -> None:
        if self._flow(caller) is not Flow.OPEN:
            async with self._changed:
                await self._changed.wait_for(lambda: self._flow(caller) is Flow.OPEN)


def process_of(near_port: int, far_port: int, pids: list[int]) -> int:
    """Which of these processes has made a connection from the one port to the other; 0 if none of them."""
    inode = _inode(near_port, far_port)
    for pid in pids:
        with suppress(OSError):  # it may just have ended
            if any(_link(each) == f"socket:[{inode}]" for each in Path(f"/proc/{pid}/fd").iterdir()):
                return pid
    return 0


def _inode(near_port: int, far_port: int) -> str:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # gRPC speaks IPv4 over sockets of IPv6
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if (_port(fields[1]), _port(fields[2])) == (near_port, far_port):
                return fields[9]
    return ""


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
