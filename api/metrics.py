"""What is counted of the calls, and how Prometheus reads it and the state of the queues, at scrape time only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from querator.queues import QueueStats

PAGE = "page"  # what is asked with GET
UNKNOWN_CALL = "unknown"  # paths that nobody knows share one label, so that callers cannot make labels
OTHER_QUEUES = "~other"  # no queue can have this name
MAX_QUEUES = 1000  # with a label of their own

_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 900.0)
_GAUGES = {
    "ready": "Items that wait to be reserved",
    "leased": "Items under a lease",
    "scheduled": "Items that are not due yet",
    "outbox": "Items on their way to another queue",
    "waiting": "Requests that wait, reserves among them",
}


class CallMetrics:
    """How often a call was answered with which code, and how long that took."""

    __slots__ = ("buckets", "codes", "seconds")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.buckets = [0] * (len(_BOUNDS_S) + 1)
        self.seconds = 0.0

    def observe(self, code: int, seconds: float) -> None:
        codes = self.codes
        codes[code] = codes.get(code, 0) + 1
        self.buckets[bisect_left(_BOUNDS_S, seconds)] += 1
        self.seconds += seconds


class Metrics:
    def __init__(self, call_names: Iterable[str]) -> None:
        self.calls: Mapping[str, CallMetrics] = {name: CallMetrics() for name in (*call_names, PAGE, UNKNOWN_CALL)}

    def render(self, *, connections: int, queues: Sequence[QueueStats]) -> bytes:
        """The text that Prometheus reads."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Snapshot(self.calls, connections, queues))
        return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, calls: Mapping[str, CallMetrics], connections: int, queues: Sequence[QueueStats]) -> None:
        self._calls = calls
        self._connections = connections
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        yield from self._collect_calls()
        yield GaugeMetricFamily("querator_connections", "Open connections", value=self._connections)
        yield GaugeMetricFamily("querator_queues", "Queues", value=len(self._queues))
        yield from self._collect_queues()

    def _collect_calls(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("querator_requests", "Answered requests", labels=["call", "code"])
        seconds = HistogramMetricFamily("querator_request_seconds", "From a request to its answer", labels=["call"])
        for name, call in self._calls.items():
            if not call.codes:
                continue
            for code, count in call.codes.items():
                requests.add_metric([name, str(code)], count)
            seconds.add_metric([name], _cumulated(call.buckets), sum_value=call.seconds)
        yield requests
        yield seconds

    def _collect_queues(self) -> Iterator[Metric]:
        totals: dict[str, dict[str, int]] = {}
        for index, stats in enumerate(self._queues):
            name = stats.queue_name if index < MAX_QUEUES else OTHER_QUEUES
            total = totals.setdefault(name, dict.fromkeys(_GAUGES, 0))
            for gauge, value in _counts(stats).items():
                total[gauge] += value
        for gauge, text in _GAUGES.items():
            family = GaugeMetricFamily(f"querator_queue_{gauge}", text, labels=["queue"])
            for name, total in totals.items():
                family.add_metric([name], total[gauge])
            yield family


def _counts(stats: QueueStats) -> dict[str, int]:
    partitions = [partition for logical_queue in stats.logical_queues for partition in logical_queue.partitions]
    return {
        "ready": sum(partition.ready for partition in partitions),
        "leased": sum(partition.leased for partition in partitions),
        "scheduled": sum(partition.scheduled for partition in partitions),
        "outbox": sum(partition.outbox for partition in partitions),
        "waiting": sum(
            each.produce_waiting + each.reserve_waiting + each.complete_waiting for each in stats.logical_queues
        ),
    }


def _cumulated(buckets: list[int]) -> list[tuple[str, float]]:
    total = 0
    cumulated: list[tuple[str, float]] = []
    for bound, count in zip((*map(str, _BOUNDS_S), "+Inf"), buckets, strict=True):
        total += count
        cumulated.append((bound, total))
    return cumulated
