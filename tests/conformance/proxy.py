"""A TCP proxy between a client and a server, which can hold back what either of them says."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Proxy:
    """Passes bytes on while ``asks`` (client to server) and ``answers`` (server to client) are set.

    What a client has sent reaches the server also if the client has gone meanwhile, as it may on a real network.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._tasks: set[asyncio.Task[None]] = set()
        self.asks = asyncio.Event()
        self.answers = asyncio.Event()
        self.held = asyncio.Event()  # something is being held back
        self.asks.set()
        self.answers.set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        # The gates of a connection are those of its beginning: a later one may pass while an earlier one is held.
        try:
            await asyncio.gather(
                self._pass_on(reader, back, self.asks, to_server=True),
                self._pass_on(there, writer, self.answers, to_server=False),
            )
        except asyncio.CancelledError:
            pass  # cut, or the test is over; nobody waits for this task
        finally:
            back.transport.abort()
            writer.transport.abort()

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, gate: asyncio.Event, *, to_server: bool
    ) -> None:
        try:
            while data := await source.read(1 << 16):
                if not gate.is_set():
                    self.held.set()
                    await gate.wait()
                target.write(data)
                await target.drain()
            await gate.wait()
        except ConnectionError:
            pass
        target.transport.abort() if not to_server else target.close()

    def cut(self) -> None:
        """End all connections, with what is held back on them."""
        for task in self._tasks:
            task.cancel()

    def new_gates(self) -> None:
        """Connections that are made from here on pass freely; those that are there keep their gates."""
        self.asks = asyncio.Event()
        self.answers = asyncio.Event()
        self.asks.set()
        self.answers.set()
