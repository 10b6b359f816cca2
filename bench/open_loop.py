"""An open loop against a Querator server: cycles start when a schedule says, whether or not earlier ones have ended.

Latency is counted from the intended start. A server that stalls therefore pays for every call that should have been
made meanwhile, as it would with real users.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque

from bench.http_client import Connection, connect
from bench.load import OK, CallFailed, split_address
from bench.measure import Counts, Load, Window
from bench.wire import Calls, decode_reserved


class _Lane:
    """A connection that runs one cycle at a time."""

    def __init__(self, loop: OpenLoop, load: Load, number: int) -> None:
        self._loop = loop
        self._address = split_address(load.address)
        self._batch = load.batch
        self._calls = Calls(load.address, load.queue_name, number, load.batch, load.payload_bytes)
        self._connection: Connection | None = None
        self._intended = 0.0
        self._call = ""
        self._taken = 0

    async def connect(self) -> None:
        self._connection = await connect(*self._address, self._answered, self._loop.fail)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def start(self, intended: float) -> None:
        self._intended = intended
        self._send("produce", self._calls.produce)

    def _send(self, call: str, request: bytes) -> None:
        assert self._connection is not None
        self._call = call
        self._connection.send(request)

    def _answered(self, status: int, body: bytes) -> None:
        if status != OK:
            self._loop.fail(CallFailed(f"{self._call}: {status} {body[:300].decode('utf-8', 'replace')}"))
        elif self._call == "produce":
            self._loop.produced(self._batch, self._intended)
            self._send("reserve", self._calls.reserve)
        elif self._call == "reserve":
            answer = decode_reserved(body)
            self._taken = len(answer.items)
            self._send("complete", self._calls.complete(answer.partition, [item.id for item in answer.items]))
        else:
            self._loop.completed(self, self._taken, self._intended)


class OpenLoop:
    """The driver of "open"."""

    def __init__(self, load: Load) -> None:
        self._rate = load.rate
        self._lanes = [_Lane(self, load, load.first_client + index) for index in range(load.clients)]
        self._idle = deque(self._lanes)
        self._late: deque[float] = deque()  # intended starts that wait for a lane
        self._stopped = threading.Event()
        self._paced = False

    async def connect(self) -> None:
        for lane in self._lanes:
            await lane.connect()

    async def run(self, window: Window, counts: Counts) -> None:
        self._counts = counts
        self._produce_latencies = counts.latency("produce")
        self._cycle_latencies = counts.latency("cycle")
        self._start_delays = counts.latency("start")
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = loop.create_future()
        pacer = threading.Thread(target=self._pace, args=(window, loop), name="pacer")
        pacer.start()
        try:
            await self._ended
        finally:
            self._stopped.set()
            pacer.join()

    async def close(self) -> None:
        for lane in self._lanes:
            lane.close()

    def _pace(self, window: Window, loop: asyncio.AbstractEventLoop) -> None:
        """Runs in a thread: a loop's own timers are as coarse as the latencies that are to be measured."""
        step = 1 / self._rate
        count = int((window.measure_until - window.start) * self._rate)
        for index in range(count):
            intended = window.start + index * step
            wait = intended - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            if self._stopped.is_set():
                return
            loop.call_soon_threadsafe(self._due, intended)
        loop.call_soon_threadsafe(self._schedule_ended)

    def _due(self, intended: float) -> None:
        if self._idle:
            self._begin(self._idle.popleft(), intended)
        else:
            self._late.append(intended)

    def _begin(self, lane: _Lane, intended: float) -> None:
        self._start_delays.append(time.monotonic() - intended)
        lane.start(intended)

    def _schedule_ended(self) -> None:
        self._paced = True
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._paced and len(self._idle) == len(self._lanes) and not self._ended.done():
            self._ended.set_result(None)

    def produced(self, items: int, intended: float) -> None:
        self._counts.produced += items
        self._produce_latencies.append(time.monotonic() - intended)

    def completed(self, lane: _Lane, items: int, intended: float) -> None:
        self._counts.completed += items
        self._cycle_latencies.append(time.monotonic() - intended)
        if self._late:
            self._begin(lane, self._late.popleft())
            return
        self._idle.append(lane)
        self._end_if_done()

    def fail(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)
