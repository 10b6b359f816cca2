"""Closed loops against a Querator server: clients that send their next call as soon as the last is answered.

A client is a small state machine on one connection. In a full cycle it produces a batch, reserves a batch and completes
what it got. A reserve never waits: before it, its client has put in at least as much as all it took out.
"""

from __future__ import annotations

import asyncio
import time

from bench.http_client import Connection, connect
from bench.measure import Counts, Load, Window
from bench.wire import Calls, decode_numbered, decode_reserved, payload_number

OK, RETRY_REQUEST = 200, 454
_NUMBERS_PER_CLIENT = 1 << 40


class CallFailed(Exception):
    """The server refused a call that should have succeeded."""


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


class Client:
    """One client: a connection, what it sent last, and what follows on the answer."""

    def __init__(self, load: Load, number: int) -> None:
        self._address = split_address(load.address)
        self._batch = load.batch
        self._numbered = load.numbered
        self._next_number = number * _NUMBERS_PER_CLIENT
        self._produce_only = load.workload != "cycle"
        self._calls = Calls(load.address, load.queue_name, number, load.batch, load.payload_bytes)
        self._connection: Connection | None = None
        self._to_produce = 0  # items that may still be produced; the end of a fill
        self._until = 0.0
        self._call = ""
        self._request = b""
        self._sent_at = 0.0
        self._taken = 0  # items under the lease that is being completed
        self._numbers: list[int] = []

    async def connect(self) -> None:
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection = await connect(*self._address, self._answered, self._lost)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def start(self, until: float, to_produce: int, counts: Counts) -> asyncio.Future[None]:
        """Loop until the instant or until so much has been produced; the future tells when it has ended, or how."""
        self._until = until
        self._to_produce = to_produce
        self._counts = counts
        self._latencies = {call: counts.latency(call) for call in self._call_names()}
        if not self._ended.done():
            self._next_cycle()
        return self._ended

    def _call_names(self) -> tuple[str, ...]:
        return ("produce",) if self._produce_only else ("produce", "reserve", "complete")

    def _next_cycle(self) -> None:
        if self._to_produce <= 0 or time.monotonic() >= self._until:
            self._ended.set_result(None)
            return
        self._to_produce -= self._batch
        request = self._calls.produce
        if self._numbered:
            request = self._calls.produce_numbered(self._next_number)
            self._next_number += self._batch
        self._send("produce", request)

    def _send(self, call: str, request: bytes) -> None:
        assert self._connection is not None
        self._call = call
        self._request = request
        self._sent_at = time.monotonic()
        self._connection.send(request)

    def _answered(self, status: int, body: bytes) -> None:
        call = self._call
        self._latencies[call].append(time.monotonic() - self._sent_at)
        if status != OK:
            self._refused(status, body)
        elif call == "produce":
            self._counts.produced += self._batch
            if self._produce_only:
                self._next_cycle()
            else:
                self._send("reserve", self._calls.reserve)
        elif call == "reserve":
            self._complete(body)
        else:
            self._counts.completed += self._taken
            self._counts.seen += self._numbers
            self._next_cycle()

    def _complete(self, body: bytes) -> None:
        if self._numbered:
            numbered = decode_numbered(body)
            self._numbers = [payload_number(item.payload) for item in numbered.items]
            partition, ids = numbered.partition, [item.id for item in numbered.items]
        else:
            reserved = decode_reserved(body)
            partition, ids = reserved.partition, [item.id for item in reserved.items]
        if not 1 <= len(ids) <= self._batch:
            self._lost(CallFailed(f"reserve: {len(ids)} items came where 1 to {self._batch} were asked for"))
            return
        self._taken = len(ids)
        self._send("complete", self._calls.complete(partition, ids))

    def _refused(self, status: int, body: bytes) -> None:
        if status == RETRY_REQUEST:
            self._counts.retries += 1
            self._send(self._call, self._request)
            return
        self._lost(CallFailed(f"{self._call}: {status} {body[:300].decode('utf-8', 'replace')}"))

    def _lost(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)


class ClosedLoop:
    """The driver of "cycle", "produce" and "fill"."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._clients = [Client(load, load.first_client + index) for index in range(load.clients)]

    async def connect(self) -> None:
        for client in self._clients:
            await client.connect()

    async def run(self, window: Window, counts: Counts) -> None:
        await asyncio.sleep(max(0.0, window.start - time.monotonic()))
        ends = [client.start(window.measure_until, share, counts) for client, share in self._shares()]
        await asyncio.gather(*ends)

    def _shares(self) -> list[tuple[Client, int]]:
        """How much each client may produce: a fill's total, divided in whole batches; otherwise without end."""
        if self._load.workload != "fill":
            return [(client, 2**62) for client in self._clients]
        batches, rest = divmod(self._load.total // self._load.batch, len(self._clients))
        return [(client, (batches + (index < rest)) * self._load.batch) for index, client in enumerate(self._clients)]

    async def close(self) -> None:
        for client in self._clients:
            client.close()
