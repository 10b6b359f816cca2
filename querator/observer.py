"""The observer: counts what logical queues commit, and lets traces follow it. Asked once per commit, never per item.

What is counted is cheap: the rest of what operators see is computed when they look (`LogicalQueue.stats`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from types import TracebackType
from typing import Protocol

from querator.histogram import COUNTS, SECONDS, Histogram
from querator.queues import PartitionPlace
from querator.requests import Complete, Deliver, Produce, Reserve, Retry
from querator.turn import Turn
from querator.waist import Batch


class CommitSpan(Protocol):
    def end(self, error: BaseException | None) -> None: ...


class CommitTracing(Protocol):
    """Where traces of commits go."""

    def commit(self, queue_name: str, turn: Turn, batch: Batch) -> CommitSpan | None:
        """A commit begins; None if nobody traces any of its requests. Must neither wait nor raise."""


class BackendCounts:
    """What was committed to one backend since the start."""

    __slots__ = ("failures", "items", "losses", "opens", "requests", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        self.requests = Histogram(COUNTS)  # of a turn
        self.items = Histogram(COUNTS)  # that a turn took in, handed out, or let go
        self.failures = 0
        self.opens = 0  # partitions that became ours
        self.losses = 0  # partitions that another owner took


class QueueCounts:
    """What became of the items of one queue since the start."""

    __slots__ = ("buried", "completed", "delivered", "produced", "reserved", "retried")

    def __init__(self) -> None:
        self.produced = 0
        self.reserved = 0
        self.completed = 0
        self.retried = 0
        self.delivered = 0  # from the outboxes of other queues
        self.buried = 0


class Observer:
    def __init__(self, tracing: CommitTracing | None = None, now_s: Callable[[], float] = monotonic) -> None:
        self.backends: dict[str, BackendCounts] = {}
        self.queues: dict[str, QueueCounts] = {}
        self.tracing = tracing
        self.now_s = now_s

    def backend(self, name: str) -> BackendCounts:
        counts = self.backends.get(name)
        if counts is None:
            counts = self.backends[name] = BackendCounts()
        return counts

    def queue(self, name: str) -> QueueCounts:
        counts = self.queues.get(name)
        if counts is None:
            counts = self.queues[name] = QueueCounts()
        return counts

    def keep_queues(self, names: Iterable[str]) -> None:
        """Forget the queues that are gone, so that what is kept stays bounded."""
        for gone in self.queues.keys() - set(names):
            del self.queues[gone]

    def opened(self, place: PartitionPlace) -> None:
        self.backend(place.backend).opens += 1

    def lost(self, place: PartitionPlace) -> None:
        self.backend(place.backend).losses += 1

    def commit(self, queue_name: str, turn: Turn, batch: Batch) -> Commit:
        """A context in which a turn is committed."""
        return Commit(self, queue_name, turn, batch)


class Commit:
    """One commit. An error that leaves the context is a failure of it; one whose outcome is unknown is one too."""

    __slots__ = ("_observer", "_queue_name", "_span", "_started_s", "_turn")

    def __init__(self, observer: Observer, queue_name: str, turn: Turn, batch: Batch) -> None:
        self._observer = observer
        self._queue_name = queue_name
        self._turn = turn
        tracing = observer.tracing
        self._span = tracing.commit(queue_name, turn, batch) if tracing is not None else None
        self._started_s = observer.now_s()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        observer = self._observer
        backend = observer.backend(self._turn.state.place.backend)
        backend.seconds.observe(observer.now_s() - self._started_s)
        if error is None:
            items = _count(self._turn, observer.queue(self._queue_name))
            backend.requests.observe(len(self._turn.answers))
            backend.items.observe(items)
        elif isinstance(error, Exception):  # a cancelled commit is the end of the logical queue, not a failure
            backend.failures += 1
        if self._span is not None:
            self._span.end(error)


def _count(turn: Turn, counts: QueueCounts) -> int:
    """Add what a turn did to the counts of a queue and of the partition; returns how many items that concerned."""
    produced = reserved = completed = retried = delivered = 0
    for request, result in turn.answers:
        if isinstance(request, Produce):
            produced += len(request.items) + len(request.scheduled)
        elif isinstance(request, Reserve):
            for run in result.runs:
                reserved += len(run.items)
        elif isinstance(request, Complete):
            completed += len(request.ids)
        elif isinstance(request, Retry):
            retried += len(request.items)
        elif isinstance(request, Deliver):
            delivered += len(request.entries)
    counts.produced += produced
    counts.reserved += reserved
    counts.completed += completed
    counts.retried += retried
    counts.delivered += delivered
    counts.buried += turn.buried
    turn.state.arrived += produced + delivered
    turn.state.completed += completed
    return produced + reserved + completed + retried + delivered
