"""How the instance is: every backend asked at the same time, each within a bounded time, and what follows from that.

A backend passes if it answers and all of its partitions can be used; it is to be warned of if some cannot, and fails if
it does not answer, is not well, or none of its partitions can be used. The instance fails only if no backend serves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import Any, NamedTuple

import structlog

from cluster.router import Router
from querator.errors import Stopping
from querator.member import Status
from querator.queues import QueueStats
from querator.version import VERSION
from querator.waist import Backend

PASS, WARN, FAIL = "pass", "warn", "fail"
_PROBE_S = 2.0

_log = structlog.get_logger("querator.api")


class Probe(NamedTuple):
    """What a backend said of itself."""

    ok: bool
    details: str  # one line for people; empty if all is well
    seconds: float  # that it took to say so


class Probes:
    """Asks backends how they are. One that hangs is not asked again before it has answered."""

    def __init__(self, router: Router, timeout_s: float = _PROBE_S) -> None:
        self._router = router
        self._timeout_s = timeout_s
        self._running: dict[str, asyncio.Task[Probe]] = {}

    async def ask(self) -> dict[str, Probe]:
        """What each backend says, by its name."""
        names = [backend.name for backend in self._router.backends()]
        asked = {name: self._probe(name, self._router.backend(name)) for name in names}
        if asked:
            await asyncio.wait(asked.values(), timeout=self._timeout_s)
        late = Probe(False, f"it did not answer within {self._timeout_s:g} s", self._timeout_s)
        return {name: task.result() if task.done() and not task.cancelled() else late for name, task in asked.items()}

    async def close(self) -> None:
        running = list(self._running.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=self._timeout_s)

    def _probe(self, name: str, backend: Backend) -> asyncio.Task[Probe]:
        task = self._running.get(name)
        if task is None:
            task = self._running[name] = asyncio.get_running_loop().create_task(_ask(backend))
            task.add_done_callback(lambda _: self._running.pop(name, None))
        return task


async def _ask(backend: Backend) -> Probe:
    started_s = monotonic()
    try:
        ok, details = await backend.health()
    except Exception as error:  # noqa: BLE001 - whatever it is, a backend that cannot even say how it is is not well
        _log.warning("backend cannot say how it is", backend=backend.name, error=repr(error))
        ok, details = False, f"{type(error).__name__}: {error}"
    return Probe(ok, details, monotonic() - started_s)


def count_states(queues: Iterable[QueueStats]) -> dict[str, Counter[str]]:
    """By backend, how many of its partitions are in which state."""
    states: dict[str, Counter[str]] = {}
    for queue in queues:
        for logical_queue in queue.logical_queues:
            for partition in logical_queue.partitions:
                states.setdefault(partition.backend, Counter())[partition.state] += 1
    return states


class ClusterState(NamedTuple):
    """What this instance knows of the cluster."""

    instances: int
    leader: str  # its id; empty if none is known
    without_owner: int  # partitions


def make_report(
    probes: Mapping[str, Probe],
    states: Mapping[str, Counter[str]],
    cluster: ClusterState,
    *,
    now_ms: int,
    stopping: bool,
) -> dict[str, Any]:
    """The document of `/health`."""
    time = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    checks = {name: _check(probe, states.get(name, Counter()), time) for name, probe in probes.items()}
    overall = _overall({check["status"] for check in checks.values()})
    of_cluster = _check_cluster(cluster, time)
    if overall == PASS:
        overall = of_cluster["status"]
    report: dict[str, Any] = {
        "status": FAIL if stopping else overall,
        "version": VERSION,
        "checks": {"cluster": [of_cluster], **{f"backend:{name}": [check] for name, check in checks.items()}},
    }
    if stopping:
        report["output"] = Stopping().message
    return report


def _check_cluster(cluster: ClusterState, time: str) -> dict[str, Any]:
    """To be warned of while partitions have no owner: callers are told to try again then."""
    check: dict[str, Any] = {
        "componentType": "system",
        "status": WARN if cluster.without_owner else PASS,
        "instances": cluster.instances,
        "leader": cluster.leader,
        "time": time,
    }
    if cluster.without_owner:
        check["output"] = f"{cluster.without_owner} partitions have no owner"
    return check


def _overall(statuses: set[str]) -> str:
    if statuses <= {PASS}:
        return PASS
    return FAIL if statuses == {FAIL} else WARN


def _check(probe: Probe, states: Counter[str], time: str) -> dict[str, Any]:
    total = states.total()
    unusable = total - states[Status.AVAILABLE]
    output = probe.details
    if probe.ok and unusable:
        output = f"{unusable} of {total} partitions cannot be used"
    check: dict[str, Any] = {
        "componentType": "datastore",
        "status": FAIL if not probe.ok or (unusable and unusable == total) else WARN if unusable else PASS,
        "observedValue": round(probe.seconds * 1000, 3),
        "observedUnit": "ms",
        "time": time,
        "partitions": dict(states),
    }
    if output:
        check["output"] = output
    return check
