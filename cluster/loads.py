"""What each instance tells the leader of its queues, and how many logical queues follow from that.

loads/<id>      Load reports by queue, of one instance, for as long as it keeps its lease
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cluster.mirror import Mirror

PREFIX = "loads/"
_CONSUMERS_EACH = 4  # that one logical queue serves before there is another
_ITEMS_EACH = 5_000  # a second
_SHRINK_AFTER_MS = 30_000


class QueueLoad(msgspec.Struct, frozen=True, array_like=True):
    """What came to one instance for one queue."""

    consumers: int  # that wait, or have reserved lately
    items_per_second: int  # produced and completed


Report = Mapping[str, QueueLoad]

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

    def forget(self, queue_name: str) -> None:
        self._present.pop(queue_name, None)
        self._less_since_ms.pop(queue_name, None)
