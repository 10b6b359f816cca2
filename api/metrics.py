"""What is counted of the calls, and how Prometheus reads it and the state of the queues, at scrape time only."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from api.health import Probe, count_states
from querator.histogram import SECONDS, Histogram
from querator.member import Status
from querator.observer import BackendCounts, Observer
from querator.queues import QueueStats
from querator.version import VERSION

PAGE = "page"  # what is asked with GET
UNKNOWN_CALL = "unknown"  # paths that nobody knows share one label, so that callers cannot make labels
OTHER_QUEUES = "~other"  # no queue can have this name
MAX_QUEUES = 1000  # with a label of their own

_GAUGES = {
    "ready": "Items that wait to be reserved",
    "leased": "Items under a lease",
    "scheduled": "Items that are not due yet",
    "outbox": "Items on their way to another queue",
    "waiting": "Requests that wait, reserves among them",
    "waiting_reserves": "Reserves that wait for items",
}
_COUNTERS = {
    "produced": "Items that were produced",
    "reserved": "Items that were handed out",
    "completed": "Items that were completed",
    "retried": "Items that were given back",
    "delivered": "Items that came from other queues",
    "buried": "Items that died",
}


class CallMetrics:
    """How often a call was answered with which code, and how long that took."""

    __slots__ = ("codes", "seconds")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.seconds = Histogram(SECONDS)

    def observe(self, code: int, seconds: float) -> None:
        codes = self.codes
        codes[code] = codes.get(code, 0) + 1
        self.seconds.observe(seconds)


class BackendSight(NamedTuple):
    probe: Probe
    affinity: float


class Sight(NamedTuple):
    """What is looked at for one scrape."""

    connections: int
    queues: Sequence[QueueStats]
    backends: Mapping[str, BackendSight]
    observer: Observer


class Metrics:
    def __init__(self, call_names: Iterable[str]) -> None:
        self.calls: Mapping[str, CallMetrics] = {name: CallMetrics() for name in (*call_names, PAGE, UNKNOWN_CALL)}

    def render(self, sight: Sight) -> bytes:
        """The text that Prometheus reads."""
        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        registry.register(_Snapshot(self.calls, sight))
        return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, calls: Mapping[str, CallMetrics], sight: Sight) -> None:
        self._calls = calls
        self._queues = sight.queues
        self._sight = sight

    def collect(self) -> Iterator[Metric]:
        yield from self._collect_calls()
        build = GaugeMetricFamily("querator_build_info", "What runs; always 1", labels=["version", "python"])
        build.add_metric([VERSION, platform.python_version()], 1)
        yield build
        yield GaugeMetricFamily("querator_connections", "Open connections", value=self._sight.connections)
        yield GaugeMetricFamily("querator_queues", "Queues", value=len(self._queues))
        yield from self._collect_queues()
        yield from self._collect_backends()
        yield from self._collect_commits()

    def _collect_calls(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("querator_requests", "Answered requests", labels=["call", "code"])
        seconds = HistogramMetricFamily("querator_request_seconds", "From a request to its answer", labels=["call"])
        for name, call in self._calls.items():
            if not call.codes:
                continue
            for code, count in call.codes.items():
                requests.add_metric([name, str(code)], count)
            _add(seconds, name, call.seconds)
        yield requests
        yield seconds

    def _collect_queues(self) -> Iterator[Metric]:
        labels = {
            stats.queue_name: stats.queue_name if index < MAX_QUEUES else OTHER_QUEUES
            for index, stats in enumerate(self._queues)
        }
        yield from self._collect_gauges(labels)
        oldest = GaugeMetricFamily(
            "querator_queue_oldest_age_seconds", "Since the item at the head became ready", labels=["queue"]
        )
        for name, seconds in _oldest_s(self._queues, labels).items():
            oldest.add_metric([name], seconds)
        yield oldest
        for counter, text in _COUNTERS.items():
            totals = dict.fromkeys(labels.values(), 0)
            for name, label in labels.items():
                totals[label] += getattr(self._sight.observer.queue(name), counter)
            family = CounterMetricFamily(f"querator_queue_{counter}", text, labels=["queue"])
            for name, total in totals.items():
                family.add_metric([name], total)
            yield family

    def _collect_gauges(self, labels: Mapping[str, str]) -> Iterator[Metric]:
        totals = {label: dict.fromkeys(_GAUGES, 0) for label in labels.values()}
        for stats in self._queues:
            for gauge, value in _counts(stats).items():
                totals[labels[stats.queue_name]][gauge] += value
        for gauge, text in _GAUGES.items():
            family = GaugeMetricFamily(f"querator_queue_{gauge}", text, labels=["queue"])
            for name, total in totals.items():
                family.add_metric([name], total[gauge])
            yield family

    def _collect_backends(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("querator_backend_up", "1 if the backend says that it is well", labels=["backend"])
        affinity = GaugeMetricFamily("querator_backend_affinity", "Its share of new partitions", labels=["backend"])
        seconds = GaugeMetricFamily(
            "querator_backend_check_seconds", "What it took to say how it is", labels=["backend"]
        )
        partitions = GaugeMetricFamily("querator_partitions", "Partitions by state", labels=["backend", "state"])
        states = count_states(self._queues)
        for name, backend in self._sight.backends.items():
            up.add_metric([name], float(backend.probe.ok))
            affinity.add_metric([name], backend.affinity)
            seconds.add_metric([name], backend.probe.seconds)
            for state in Status:
                partitions.add_metric([name, state], states[name][state] if name in states else 0)
        yield from (up, affinity, seconds, partitions)

    def _collect_commits(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily("querator_commit_seconds", "From a commit to its end", labels=["backend"])
        requests = HistogramMetricFamily("querator_commit_requests", "Requests in a commit", labels=["backend"])
        items = HistogramMetricFamily("querator_commit_items", "Items that a commit is about", labels=["backend"])
        failures = CounterMetricFamily("querator_commit_failures", "Commits that failed", labels=["backend"])
        opens = CounterMetricFamily("querator_partition_opens", "Partitions that became ours", labels=["backend"])
        losses = CounterMetricFamily("querator_partition_losses", "Partitions that others took", labels=["backend"])
        for name, counts in self._backend_counts():
            _add(seconds, name, counts.seconds)
            _add(requests, name, counts.requests)
            _add(items, name, counts.items)
            failures.add_metric([name], counts.failures)
            opens.add_metric([name], counts.opens)
            losses.add_metric([name], counts.losses)
        yield from (seconds, requests, items, failures, opens, losses)

    def _backend_counts(self) -> Iterator[tuple[str, BackendCounts]]:
        for name in self._sight.backends:
            yield name, self._sight.observer.backend(name)


def _add(family: HistogramMetricFamily, label: str, histogram: Histogram) -> None:
    family.add_metric([label], list(histogram.cumulated()), sum_value=histogram.sum)


def _counts(stats: QueueStats) -> dict[str, int]:
    partitions = [partition for logical_queue in stats.logical_queues for partition in logical_queue.partitions]
    reserves = sum(each.reserve_waiting for each in stats.logical_queues)
    return {
        "ready": sum(partition.ready for partition in partitions),
        "leased": sum(partition.leased for partition in partitions),
        "scheduled": sum(partition.scheduled for partition in partitions),
        "outbox": sum(partition.outbox for partition in partitions),
        "waiting": reserves + sum(each.produce_waiting + each.complete_waiting for each in stats.logical_queues),
        "waiting_reserves": reserves,
    }


def _oldest_s(queues: Iterable[QueueStats], labels: Mapping[str, str]) -> dict[str, float]:
    oldest = dict.fromkeys(labels.values(), 0.0)
    for stats in queues:
        label = labels[stats.queue_name]
        for logical_queue in stats.logical_queues:
            for partition in logical_queue.partitions:
                oldest[label] = max(oldest[label], partition.oldest_age_ms / 1000)
    return oldest
