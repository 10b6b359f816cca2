"""The fault injector: wraps any backend, and fails or delays its calls as it is told.

What befalls a call is decided when it is made, by a `Faults`: none, a script, or a seeded random generator. With the
same decisions and the same order of calls everything that follows is the same.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import Protocol, TypeVar

import msgspec

from querator.clock import Clock
from querator.waist import Backend, Batch, Health, Opened, OutcomeUnknown, Partition, Record, StorageError, StoredBlock

_Result = TypeVar("_Result")


class Call(StrEnum):
    """The calls that can be struck. Scans are `scan`, `scan_blocks` and `get`."""

    CREATE = "create"
    DROP = "drop"
    LIST = "list"
    OPEN = "open"
    COMMIT = "commit"
    SCAN = "scan"


class Outcome(StrEnum):
    """What becomes of a call; the two lost answers are for commits, and fail any other call after or before it."""

    DONE = "done"
    REFUSED = "refused"  # an error before anything was done: `StorageError`
    LOST_AFTER = "lost after"  # it was done, and the caller does not know: `OutcomeUnknown`
    LOST_BEFORE = "lost before"  # it was not done, and the caller does not know: `OutcomeUnknown`


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Outcome = Outcome.DONE
    delay_ms: int = 0  # by the clock, before the call reaches the backend
    gate: asyncio.Event | None = None  # the call waits until it is set, before it reaches the backend

    @property
    def waits(self) -> bool:
        return self.delay_ms > 0 or self.gate is not None


NO_FAULT = Fault()


class Faults(Protocol):
    def next(self, call: Call, partition: int | None) -> Fault:
        """What befalls this call. Asked exactly once per call; ``partition`` is None for calls of the backend."""


class NoFaults:
    def next(self, call: Call, partition: int | None) -> Fault:  # noqa: ARG002 the protocol asks with both
        return NO_FAULT


class ScriptedFaults:
    """Strikes the next calls of a kind in the order in which they were added."""

    def __init__(self) -> None:
        self._scripts: defaultdict[tuple[Call, int | None], deque[Fault]] = defaultdict(deque)

    def add(self, call: Call, *faults: Fault, partition: int | None = None) -> None:
        """Strike the next calls of this kind: of one partition, or of any if none is named."""
        self._scripts[call, partition].extend(faults)

    def next(self, call: Call, partition: int | None) -> Fault:
        for key in ((call, partition), (call, None)):
            if self._scripts[key]:
                return self._scripts[key].popleft()
        return NO_FAULT

    @property
    def exhausted(self) -> bool:
        """Whether every fault that was added has struck."""
        return not any(self._scripts.values())


class Chances(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities from 0 to 1. At most one of a commit's three failures strikes."""

    commit_refused: float = 0.0
    commit_lost_after: float = 0.0
    commit_lost_before: float = 0.0
    open_refused: float = 0.0
    scan_refused: float = 0.0
    slow: float = 0.0  # of any call of a partition, failing or not
    slowest_ms: int = 1000


class RandomFaults:
    """Draws a fault for each call of a partition; the same number of draws per call, whatever the chances."""

    def __init__(self, random: Random, chances: Chances) -> None:
        self._random = random
        self._chances = chances

    def next(self, call: Call, partition: int | None) -> Fault:
        if partition is None:
            return NO_FAULT
        fate, slow, length = self._random.random(), self._random.random(), self._random.random()
        delay_ms = 1 + int(length * self._chances.slowest_ms) if slow < self._chances.slow else 0
        return Fault(outcome=self._outcome(call, fate), delay_ms=delay_ms)

    def _outcome(self, call: Call, fate: float) -> Outcome:
        chances = self._chances
        if call is Call.COMMIT:
            for outcome, chance in (
                (Outcome.REFUSED, chances.commit_refused),
                (Outcome.LOST_AFTER, chances.commit_lost_after),
                (Outcome.LOST_BEFORE, chances.commit_lost_before),
            ):
                if fate < chance:
                    return outcome
                fate -= chance
            return Outcome.DONE
        chance = {Call.OPEN: chances.open_refused, Call.SCAN: chances.scan_refused}.get(call, 0.0)
        return Outcome.REFUSED if fate < chance else Outcome.DONE


class FaultyPartition:
    def __init__(self, backend: FaultyBackend, inner: Partition, uid: int) -> None:
        self._backend = backend
        self._inner = inner
        self._uid = uid
        self._in_flight: set[asyncio.Task[None]] = set()

    async def open(self, epoch: int) -> Opened:
        await self._settle()
        return await self._backend.strike(Call.OPEN, self._uid, lambda: self._inner.open(epoch))

    async def commit(self, batch: Batch) -> None:
        fault = self._backend.faults.next(Call.COMMIT, self._uid)
        if not fault.waits:
            await self._commit(fault, batch)
            return
        # A caller that goes away while the call is slow does not take the batch back.
        task = asyncio.create_task(self._commit(fault, batch), name=f"slow commit of partition {self._uid}")
        self._in_flight.add(task)
        task.add_done_callback(self._end)
        await asyncio.shield(task)

    async def scan_blocks(self, start: int, stop: int, limit: int, reverse: bool = False) -> list[StoredBlock]:
        return await self._scan(lambda: self._inner.scan_blocks(start, stop, limit, reverse))

    async def scan(self, start: bytes, stop: bytes, limit: int, reverse: bool = False) -> list[Record]:
        return await self._scan(lambda: self._inner.scan(start, stop, limit, reverse))

    async def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return await self._scan(lambda: self._inner.get(keys))

    async def close(self) -> None:
        await self._settle()
        await self._inner.close()

    async def _scan(self, call: Callable[[], Awaitable[_Result]]) -> _Result:
        return await self._backend.strike(Call.SCAN, self._uid, call)

    async def _commit(self, fault: Fault, batch: Batch) -> None:
        await self._backend.befall(fault, Call.COMMIT, self._uid, lambda: self._inner.commit(batch))

    async def _settle(self) -> None:
        if self._in_flight:
            await asyncio.wait(self._in_flight)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        if not task.cancelled():
            # Whoever awaits the commit gets the error too; this marks it as seen if nobody does any more.
            task.exception()


class FaultyBackend:
    """Passes every call on to ``inner``, except as ``faults`` says and while it is broken."""

    def __init__(self, inner: Backend, faults: Faults | None = None, clock: Clock | None = None) -> None:
        self.faults: Faults = faults or NoFaults()
        self._inner = inner
        self._clock = clock
        self._broken = False
        self._broken_partitions: set[int] = set()

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def driver(self) -> str:
        return self._inner.driver

    @property
    def affinity(self) -> float:
        return self._inner.affinity

    @affinity.setter
    def affinity(self, affinity: float) -> None:
        self._inner.affinity = affinity

    def break_(self, partition: int | None = None) -> None:
        """Refuse every call, or those of one partition, until `mend`."""
        if partition is None:
            self._broken = True
        else:
            self._broken_partitions.add(partition)

    def mend(self, partition: int | None = None) -> None:
        """End what `break_` with the same argument began."""
        if partition is None:
            self._broken = False
        else:
            self._broken_partitions.discard(partition)

    async def create(self, partition: int) -> None:
        await self.strike(Call.CREATE, partition, lambda: self._inner.create(partition))

    async def drop(self, partition: int) -> None:
        await self.strike(Call.DROP, partition, lambda: self._inner.drop(partition))

    async def list(self) -> list[int]:
        return await self.strike(Call.LIST, None, self._inner.list)

    def partition(self, partition: int) -> FaultyPartition:
        return FaultyPartition(self, self._inner.partition(partition), partition)

    async def health(self) -> Health:
        return Health(ok=False, details="broken") if self._broken else await self._inner.health()

    async def close(self) -> None:
        await self._inner.close()

    async def strike(self, call: Call, partition: int | None, run: Callable[[], Awaitable[_Result]]) -> _Result:
        return await self.befall(self.faults.next(call, partition), call, partition, run)

    async def befall(
        self, fault: Fault, call: Call, partition: int | None, run: Callable[[], Awaitable[_Result]]
    ) -> _Result:
        if fault.waits:
            await self._wait(fault)
        if self._broken or partition in self._broken_partitions:
            raise StorageError(f"injected: {call} of a broken backend")
        if fault.outcome is Outcome.REFUSED:
            raise StorageError(f"injected: {call} was refused")
        if fault.outcome is Outcome.LOST_BEFORE:
            raise OutcomeUnknown(f"injected: the answer of {call} was lost")
        result = await run()
        if fault.outcome is Outcome.LOST_AFTER:
            raise OutcomeUnknown(f"injected: the answer of {call} was lost")
        return result

    async def _wait(self, fault: Fault) -> None:
        if fault.gate is not None:
            await fault.gate.wait()
        if fault.delay_ms:
            assert self._clock is not None, "a delay needs a clock"
            passed = asyncio.Event()
            self._clock.call_at(self._clock.now_ms() + fault.delay_ms, passed.set)
            await passed.wait()
