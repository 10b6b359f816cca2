"""The load generator against a small queue in the test's own process, and what is made of its measurements."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from array import array
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast

import pytest

from bench import contestants
from bench.contestants import split_load
from bench.generator import Timing
from bench.load import CallFailed, ClosedLoop
from bench.measure import Counts, Driver, Load, Measurement, Window
from bench.open_loop import OpenLoop
from bench.proc import CpuTime
from bench.profile import count_samples
from bench.report import short
from bench.rounds import Case, ItemsLost, Outcome, TooShort, merge
from bench.server_process import Control


class TinyQueue:
    """Answers the three calls of a cycle from memory, over real connections."""

    def __init__(self, fail_at: int = 0, status: int = 400) -> None:
        self.ready: deque[tuple[str, str]] = deque()
        self.leased: set[str] = set()
        self._calls = 0
        self._fail_at = fail_at
        self._status = status
        self._made = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = int(head.lower().split("content-length:")[1].split()[0])
                request = json.loads(await reader.readexactly(length))
                status, answer = self._answer(head.split()[1], request)
                body = json.dumps(answer).encode()
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        except asyncio.IncompleteReadError:
            writer.close()

    def _answer(self, path: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self._calls += 1
        if self._calls == self._fail_at:
            return self._status, {"code": self._status, "message": "refused by the test"}
        if path.endswith("produce"):
            for item in request["items"]:
                self._made += 1
                self.ready.append((f"{self._made:023x}", item["bytes"]))
            return 200, {"code": 200}
        if path.endswith("reserve"):
            taken = [self.ready.popleft() for _ in range(min(request["batch_size"], len(self.ready)))]
            self.leased.update(item_id for item_id, _ in taken)
            return 200, {"items": [{"id": item_id, "bytes": payload} for item_id, payload in taken]}
        self.leased.difference_update(request["ids"])
        return 200, {"code": 200}


async def run_against(queue: TinyQueue, driver_of: Callable[[Load], Driver], **fields: Any) -> Counts:
    server = await asyncio.start_server(queue.serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    load = Load(target="querator", address=address, queue_name="q", **fields)
    driver, counts = driver_of(load), Counts()
    start = time.monotonic()
    await driver.connect()
    try:
        await driver.run(Window(start, start, start + 0.2), counts)
    finally:
        await driver.close()
        server.close()
    return counts


async def test_cycles_count_what_went_through() -> None:
    """After a round, produced minus completed is what the queue holds, and each number was seen at most once."""
    queue = TinyQueue()
    counts = await run_against(queue, ClosedLoop, workload="cycle", batch=3, clients=4, numbered=True)
    assert counts.completed > 0
    assert counts.produced - counts.completed == len(queue.ready)
    assert not queue.leased
    assert len(counts.seen) == len(set(counts.seen)) == counts.completed


async def test_a_fill_stops_at_its_total() -> None:
    """A fill puts in exactly what it was asked for, however many clients share it."""
    queue = TinyQueue()
    counts = await run_against(queue, ClosedLoop, workload="fill", batch=10, clients=3, total=70)
    assert counts.produced == len(queue.ready) == 70


async def test_a_refused_call_fails_the_round() -> None:
    """An error answer ends the round with that error."""
    with pytest.raises(CallFailed, match="refused by the test"):
        await run_against(TinyQueue(fail_at=5), ClosedLoop, workload="cycle", batch=1, clients=1)


async def test_a_call_to_be_retried_is_sent_again() -> None:
    """ "Retry Request" is counted, repeated, and does not lose the item."""
    queue = TinyQueue(fail_at=4, status=454)
    counts = await run_against(queue, ClosedLoop, workload="cycle", batch=1, clients=1)
    assert counts.retries == 1
    assert counts.produced == counts.completed


async def test_an_open_loop_leaves_out_no_start() -> None:
    """Every intended start is run to its end and counted, also if all connections are busy when it is due."""
    queue = TinyQueue()
    counts = await run_against(queue, OpenLoop, workload="open", batch=1, clients=1, rate=5000.0)
    assert counts.produced == counts.completed == len(counts.latencies["cycle"])
    assert counts.completed in {999, 1000}
    assert not queue.ready


class CountedQueue:
    """Stands for the server's control calls: what it counts, and what a drain brings."""

    def __init__(self, waiting: list[int], drained: list[int]) -> None:
        self._waiting = waiting
        self._drained = drained

    def waiting(self, _queue_name: str) -> int:
        return self._waiting.pop(0)

    def drain(self, _queue_name: str, count: int) -> list[int]:
        assert count == len(self._drained)
        return self._drained


@pytest.mark.parametrize(
    ("waiting", "seen", "drained", "complaint"),
    [
        ([0, 1, 0], [1, 2], [3], None),
        ([0, 0, 0], [1, 2], [], "are in the queue"),
        ([0, 1, 1, 1], [1, 2], [3], "are left"),
        ([0, 1, 0], [1, 2], [2], "came twice"),
        ([0, 1, 0], [1], [3], "were produced"),
    ],
)
def test_a_round_that_loses_or_repeats_an_item_fails(
    monkeypatch: pytest.MonkeyPatch, waiting: list[int], seen: list[int], drained: list[int], complaint: str | None
) -> None:
    """A round counts only if the server's count, the rest that comes out and each single item agree."""
    whole = measurement(3, generator=CpuTime(1.0, 0.0))
    result = dataclasses.replace(whole, completed=2, completed_inside=2, seen=seen)
    monkeypatch.setattr(contestants, "generate", lambda _loads, _timing: [result])
    control = cast("Control", CountedQueue(waiting, drained))
    server = contestants.Querator("querator", "127.0.0.1:1")
    with pytest.raises(ItemsLost, match=complaint) if complaint else nullcontext():
        server.run_on(control, "q", Case(numbered=True), Timing(0.0, 1.0))


def test_split_loads_add_up() -> None:
    """Clients, rate and total are divided over the processes with nothing lost and no client number used twice."""
    load = Load(
        target="x", workload="open", address="", queue_name="q", batch=1, clients=7, rate=70.0, watched={"s": 1}
    )
    parts = split_load(load, 3)
    assert sum(part.clients for part in parts) == 7
    assert sum(part.rate for part in parts) == pytest.approx(70.0)
    clients = [part.first_client + index for part in parts for index in range(part.clients)]
    assert clients == list(range(7))
    assert [dict(part.watched) for part in parts] == [{"s": 1}, {}, {}]


def measurement(items: int, **cpu: CpuTime) -> Measurement:
    return Measurement(
        seconds=2.0,
        produced_inside=items,
        completed_inside=items,
        produced=items,
        completed=items,
        retries=0,
        cpu=cpu,
        latencies={"produce": array("d", [0.001] * items)},
        seen=[],
    )


def test_processes_merge_into_one_round() -> None:
    """Items and latencies of all processes count; a server that two of them watch counts once."""
    first = measurement(10, generator=CpuTime(1.0, 0.0), server=CpuTime(2.0, 1.0))
    merged = merge([first, measurement(30, generator=CpuTime(0.5, 0.0))], produce_only=False)
    assert (merged.items, merged.rate, merged.calls["produce"].calls) == (40, 20.0, 40)
    assert merged.cpu == {"generator": CpuTime(1.5, 0.0), "server": CpuTime(2.0, 1.0)}


def test_a_round_in_which_nothing_went_through_is_an_error() -> None:
    """A window too short for a slow contestant is reported as such, not as a rate of 0."""
    with pytest.raises(TooShort, match="longer --duration"):
        merge([measurement(0, generator=CpuTime(1.0, 0.0))], produce_only=False)


def test_cpu_per_item_sums_over_rounds() -> None:
    """CPU per item is all CPU over all items, not a mean of rounds of different size."""
    rounds = [
        merge([measurement(items, generator=CpuTime(1.0, 0.0))], produce_only=False) for items in (1_000_000, 3_000_000)
    ]
    outcome = Outcome(Case(), "x", "querator", rounds)
    found = outcome.cpu_us_per_item("generator")
    assert found is not None
    assert found.main == pytest.approx(0.5)
    assert outcome.cpu_us_per_item("server") is None


def test_samples_count_a_recursive_function_once() -> None:
    """A function that is on a stack twice is counted once in what it costs with its callees."""
    own, within = count_samples("a;b;a 3\na;c 2\n")
    assert own == {"a": 3, "c": 2}
    assert within == {"a": 5, "b": 3, "c": 2}


@pytest.mark.parametrize(
    ("number", "text"), [(1.234, "1.23"), (12.34, "12.3"), (999, "999"), (15_432, "15.4 k"), (1e7, "10.0 M")]
)
def test_numbers_are_shown_with_three_digits(number: float, text: str) -> None:
    """Tables show the digits that a noisy machine can stand for."""
    assert short(number) == text
