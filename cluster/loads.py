"""What each instance tells the leader of its queues, and how many logical queues follow from that.

loads/<id>      Load reports by queue, of one instance, for as long as it keeps its lease
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import structlog

from cluster.coordinator import CoordinationError, Coordinator
from cluster.host import Host
from cluster.membership import Membership
from cluster.mirror import Mirror
from cluster.reserving import Reserving
from querator.clock import Clock, sleep_ms

PREFIX = "loads/"
_CONSUMERS_EACH = 4  # that one logical queue serves before there is another
_ITEMS_EACH = 5_000  # a second
_SHRINK_AFTER_MS = 30_000
_REPORT_EVERY_MS = 2_000
_COARSE = 500  # items a second; reports are written only when they change

_log = structlog.get_logger(__name__)


class QueueLoad(msgspec.Struct, frozen=True, array_like=True):
    """What came to one instance for one queue."""

    consumers: int  # that wait
    items_per_second: int  # produced, reserved and completed; coarse


encode_report = msgspec.json.Encoder().encode
decode_report = msgspec.json.Decoder(dict[str, QueueLoad]).decode


def wanted_by(loads: Iterable[QueueLoad]) -> int:
    """How many logical queues a queue with this load should have, if there are partitions and instances enough."""
    loads = list(loads)
    consumers = sum(load.consumers for load in loads)
    items = sum(load.items_per_second for load in loads)
    return max(1, -(-consumers // _CONSUMERS_EACH), -(-items // _ITEMS_EACH))


class Demand:
    """How many logical queues each queue should have: it grows at once, and shrinks when it was less for a while."""

    def __init__(self, reports: Mirror[dict[str, QueueLoad]]) -> None:
        self._reports = reports
        self._present: dict[str, int] = {}
        self._less_since_ms: dict[str, int] = {}

    def of(self, queue_name: str, now_ms: int) -> int:
        loads = [report[queue_name] for _, report in self._reports.items() if queue_name in report]
        wanted, present = wanted_by(loads), self._present.get(queue_name, 0)
        if wanted < present:
            since_ms = self._less_since_ms.setdefault(queue_name, now_ms)
            if now_ms - since_ms < _SHRINK_AFTER_MS:
                return present
        self._less_since_ms.pop(queue_name, None)
        self._present[queue_name] = wanted
        return wanted


class Reporter:
    """`run` as long as the instance lives."""

    def __init__(
        self, host: Host, reserving: Reserving, membership: Membership, coordinator: Coordinator, clock: Clock
    ) -> None:
        self._host = host
        self._reserving = reserving
        self._membership = membership
        self._coordinator = coordinator
        self._clock = clock
        self._counted: dict[str, int] = {}
        self._reported: tuple[int, dict[str, QueueLoad]] = (0, {})  # under which lease, and what

    async def run(self) -> None:
        while True:
            await sleep_ms(self._clock, _REPORT_EVERY_MS)
            report, lease = self.measure(), self._membership.lease
            if lease is None or lease.lost.is_set() or (lease.id, report) == self._reported:
                continue
            key = PREFIX + self._host.me
            try:
                await self._coordinator.transact(expected={}, puts={key: encode_report(report)}, lease=lease)
            except CoordinationError as error:
                _log.info("load was not reported", error=str(error))
            else:
                self._reported = (lease.id, report)

    def measure(self) -> dict[str, QueueLoad]:
        """The load since this was last asked."""
        report: dict[str, QueueLoad] = {}
        for queue in self._host.catalog.all():
            counts = self._host.observer.queues.get(queue.name)
            total = counts.produced + counts.reserved + counts.completed if counts is not None else 0
            rate = (total - self._counted.get(queue.name, total)) * 1000 // _REPORT_EVERY_MS
            self._counted[queue.name] = total
            here = sum(each.stats().reserve_waiting for each in self._host.logical_queues(queue.name))
            consumers = max(here, self._reserving.waiting(queue.name))
            if consumers or rate >= _COARSE:
                report[queue.name] = QueueLoad(consumers, rate // _COARSE * _COARSE)
        return report
