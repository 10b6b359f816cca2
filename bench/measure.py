"""One round's measurement: what is asked of a generator process, when it counts, and what it reports."""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bench.proc import CpuTime, cpu_time

GENERATOR = "generator"


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one generator process does. Goes to it by pickle."""

    target: str  # the name of a driver: see bench.generator
    workload: str  # "cycle", "produce", "fill" or "open"
    address: str  # host:port, a data source name, or a folder
    queue_name: str
    batch: int
    clients: int
    payload_bytes: int = 200
    first_client: int = 0  # the number of this process's first client, so that clients are told apart
    total: int = 0  # fill: items to produce by this process
    rate: float = 0.0  # open: cycles started per second by this process
    numbered: bool = False  # each payload is unique, and what arrives is reported
    watched: Mapping[str, int] = field(default_factory=dict)  # processes whose CPU time is measured, with descendants


class Window(NamedTuple):
    """When a round starts, counts and ends, on the machine's monotonic clock, which all processes share."""

    start: float
    measure_from: float
    measure_until: float


class Counts:
    """What a driver adds to while it runs. A sampler reads it from another thread."""

    __slots__ = ("completed", "latencies", "produced", "retries", "seen")

    def __init__(self) -> None:
        self.produced = 0
        self.completed = 0
        self.retries = 0  # refused with "try again", and tried again
        self.latencies: dict[str, array[float]] = {}  # by call, in seconds
        self.seen: list[int] = []  # the numbers of completed items, if they are numbered

    def latency(self, call: str) -> array[float]:
        return self.latencies.setdefault(call, array("d"))


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one generator process saw."""

    seconds: float  # the length of the measured part
    produced_inside: int  # within the measured part
    completed_inside: int
    produced: int  # over the whole round, with warm-up and end
    completed: int
    retries: int
    cpu: Mapping[str, CpuTime]  # within the measured part
    latencies: Mapping[str, array[float]]  # over the measured part
    seen: list[int]


class Driver(Protocol):
    """One kind of target, loaded from within a generator process."""

    async def connect(self) -> None:
        """Make ready: all connections open, nothing sent that counts."""

    async def run(self, window: Window, counts: Counts) -> None:
        """Load the target from ``window.start`` to ``window.measure_until``, and finish what has been begun."""

    async def close(self) -> None: ...


class _Sample(NamedTuple):
    at: float
    produced: int
    completed: int
    latency_counts: dict[str, int]
    cpu: dict[str, CpuTime]


class Sampler:
    """Reads counts and CPU times at the two ends of the measured part, from its own thread.

    A thread, since some drivers never give their event loop a chance to run a timer.
    """

    def __init__(self, load: Load, window: Window, counts: Counts) -> None:
        self._watched = {**load.watched, GENERATOR: os.getpid()}
        self._window = window
        self._counts = counts
        self._samples: list[_Sample] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> Measurement:
        """Called when the driver has ended, which may be before the window does."""
        self._ended.set()
        self._thread.join()
        first, last = self._samples
        counts = self._counts
        return Measurement(
            seconds=last.at - first.at,
            produced_inside=last.produced - first.produced,
            completed_inside=last.completed - first.completed,
            produced=counts.produced,
            completed=counts.completed,
            retries=counts.retries,
            cpu={name: last.cpu[name].since(first.cpu[name]) for name in self._watched},
            latencies={
                call: values[first.latency_counts.get(call, 0) : last.latency_counts.get(call, 0)]
                for call, values in counts.latencies.items()
            },
            seen=counts.seen,
        )

    def _run(self) -> None:
        for instant in (self._window.measure_from, self._window.measure_until):
            self._ended.wait(max(0.0, instant - time.monotonic()))
            self._samples.append(self._sample())

    def _sample(self) -> _Sample:
        counts = self._counts
        return _Sample(
            time.monotonic(),
            counts.produced,
            counts.completed,
            {call: len(values) for call, values in list(counts.latencies.items())},
            {name: cpu_time(pid) for name, pid in self._watched.items()},
        )
