"""Coordination on one host: an SQLite file that the host's processes share."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import structlog

from cluster.coordinator import Change, CoordinationError, Entry, Lease, Snapshot, check_transaction
from cluster.lease import host_clock
from cluster.one_host_file import OneHostFile
from cluster.one_host_pulse import Pulse
from querator.clock import Clock, sleep_ms

_log = structlog.get_logger(__name__)

_REQUEST_TIMEOUT_MS = 10_000
_PAUSE_AFTER_ERROR_MS = 500

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class OneHostCoordinator:
    """Made by `open`. A call is one hop to the thread that uses the file, whatever its number of statements."""

    def __init__(self, file: OneHostFile, thread: ThreadPoolExecutor, clock: Clock, request_timeout_ms: int) -> None:
        self._file = file
        self._thread = thread
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._leases: set[Lease] = set()
        self._pulse = Pulse(self._look, clock)

    @classmethod
    async def open(
        cls, path: Path, *, clock: Clock | None = None, request_timeout_ms: int = _REQUEST_TIMEOUT_MS
    ) -> OneHostCoordinator:
        """The clock must be one that all processes on the file share, as `host_clock` is."""
        thread = ThreadPoolExecutor(1, "one-host")
        loop = asyncio.get_running_loop()
        try:
            file = await loop.run_in_executor(thread, OneHostFile, path, request_timeout_ms / 1000)
        except (sqlite3.Error, OSError) as error:
            thread.shutdown()
            raise CoordinationError(f"{path.name} cannot be opened: {error}") from error
        return cls(file, thread, clock or host_clock(), request_timeout_ms)

    async def get(self, key: str) -> Entry | None:
        return await self._ask(self._file.get, key, self._clock.now_ms())

    async def list(self, prefix: str) -> list[Entry]:
        return [*(await self._snapshot(prefix)).entries]

    async def transact(
        self,
        *,
        expected: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Sequence[str] = (),
        lease: Lease | None = None,
    ) -> int | None:
        check_transaction(puts, deletes, lease)
        lease_id = None if lease is None else lease.id
        revision = await self._ask(self._file.transact, expected, puts, deletes, lease_id, self._clock.now_ms())
        self._pulse.saw(revision or 0)
        return revision

    async def grant(self, ttl_ms: int) -> Lease:
        now_ms = self._clock.now_ms()
        lease_id = await self._ask(self._file.grant, ttl_ms, now_ms)
        self._leases = {lease for lease in self._leases if not lease.lost.is_set()}
        lease = Lease(
            lease_id=lease_id, ttl_ms=ttl_ms, sent_at_ms=now_ms, clock=self._clock, renew=self._renew, end=self._end
        )
        self._leases.add(lease)
        return lease

    async def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Change, None]:
        position: int | None = None
        with self._pulse.watching():
            while not self._pulse.closed:
                try:
                    found, position = await self._next(prefix, position)
                except CoordinationError as error:
                    if not self._pulse.closed:
                        _log.warning("watch was interrupted", prefix=prefix, error=str(error))
                        await sleep_ms(self._clock, _PAUSE_AFTER_ERROR_MS)
                    continue
                for each in found:
                    yield each
                if not found:
                    await self._pulse.after(position)

    async def close(self) -> None:
        if self._pulse.closed:
            return
        await asyncio.gather(*(lease.abandon() for lease in self._leases))
        await self._pulse.close()
        # Behind all that was asked before: a transaction whose caller has gone may still run.
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown()  # waits: the thread touches the event loop after it has answered

    async def _next(self, prefix: str, position: int | None) -> tuple[Sequence[Snapshot | Change], int]:
        """What a watch tells next, which is nothing or all up to the revision that is returned."""
        found = None if position is None else await self._ask(self._file.changes, prefix, position)
        if found is not None:
            changes, until = found
            return changes, until
        snapshot = await self._snapshot(prefix)
        return [snapshot], snapshot.revision

    async def _snapshot(self, prefix: str) -> Snapshot:
        return await self._ask(self._file.snapshot, prefix, self._clock.now_ms())

    async def _look(self) -> int:
        return await self._ask(self._file.look, self._clock.now_ms())

    async def _renew(self, lease_id: int, timeout_ms: int) -> bool:
        return await self._ask_within(timeout_ms, self._file.renew, lease_id, self._clock.now_ms())

    async def _end(self, lease_id: int) -> None:
        self._pulse.saw(await self._ask(self._file.end, lease_id))

    async def _ask(self, function: Callable[[*Arguments], T], *args: *Arguments) -> T:
        return await self._ask_within(self._request_timeout_ms, function, *args)

    async def _ask_within(self, timeout_ms: int, function: Callable[[*Arguments], T], *args: *Arguments) -> T:
        """A caller that is cancelled or runs out of time leaves what has begun to its end."""
        if self._pulse.closed:
            raise CoordinationError("the coordinator is closed")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
        except TimeoutError:
            raise CoordinationError(f"the coordination's file was busy for {timeout_ms} ms") from None
        except (sqlite3.Error, OSError) as error:
            raise CoordinationError(str(error)) from error
