"""The worker: what it tells the server of an item, in every way in which a handler can end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from querator import errors
from querator.client import Client
from querator.client_items import ReservedItem
from querator.clock import SystemClock
from querator.durations import to_instant
from querator.worker import Reject, RetryLater, Worker
from tests.unit.client_double import OK, QUICK, ServerDouble, serve_double


class QueueDouble:
    """Hands out items, and keeps what it is told of them."""

    def __init__(self, server: ServerDouble) -> None:
        self.server = server
        self.ready: list[str] = []
        self.lost: set[str] = set()  # ids that are no longer leased
        self.lease_timeout = "1h"
        self._wake = asyncio.Event()
        server.on("queues.info", lambda _: {"queue_name": "mail", "lease_timeout": self.lease_timeout})
        server.on("queue.reserve", self._reserve)
        server.on("queue.complete", lambda body: self._settle(body["ids"], OK))
        server.on("queue.retry", lambda body: self._settle([item["id"] for item in body["items"]], OK))
        server.on("queue.renew", self._renew)

    def put(self, *ids: str) -> None:
        self.ready.extend(ids)
        self._wake.set()

    @property
    def completed(self) -> list[str]:
        return [
            id_
            for asked in self.server.asked["queue.complete"]
            if not self.lost.intersection(asked["ids"])
            for id_ in asked["ids"]
        ]

    @property
    def retried(self) -> list[dict[str, Any]]:
        return [item for asked in self.server.asked["queue.retry"] for item in asked["items"]]

    async def _reserve(self, body: dict[str, Any]) -> dict[str, Any]:
        while not self.ready:
            self._wake.clear()
            await self._wake.wait()
        taken, self.ready = self.ready[: body["batch_size"]], self.ready[body["batch_size"] :]
        deadline = "2030-01-01T00:00:00Z"
        return {
            "queue_name": "mail",
            "items": [{"id": id_, "attempts": 1, "lease_deadline": deadline} for id_ in taken],
        }

    def _settle(self, ids: list[str], answer: dict[str, Any]) -> dict[str, Any]:
        for id_ in ids:
            if id_ in self.lost:
                raise errors.NotLeased(id_)
        return answer

    def _renew(self, body: dict[str, Any]) -> dict[str, Any]:
        deadline = "2030-01-01T00:00:00Z"
        return self._settle(body["ids"], {"items": [{"id": id_, "lease_deadline": deadline} for id_ in body["ids"]]})


@pytest.fixture
async def queue() -> AsyncIterator[QueueDouble]:
    async with serve_double() as server:
        yield QueueDouble(server)


@pytest.fixture
async def worker(queue: QueueDouble) -> AsyncIterator[Worker]:
    async with Client(queue.server.url, timeout=20, backoff=QUICK) as client:
        yield Worker(client, handle_signals=False)


@asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(worker.serve())
    try:
        async with asyncio.timeout(30):
            yield task
            worker.stop()
            await task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_handler_that_returns_completes(queue: QueueDouble, worker: Worker) -> None:
    """Items are handed to the async function and completed, several with one call."""
    seen: list[ReservedItem] = []
    gate = asyncio.Event()

    @worker.handler("mail", concurrency=50)
    async def handle(item: ReservedItem) -> None:
        seen.append(item)
        await gate.wait()

    ids = [f"{number:02d}" for number in range(50)]
    queue.put(*ids)
    async with serving(worker):
        await queue.server.until(lambda: bool(queue.server.asked["queue.reserve"]))
        gate.set()
        await queue.server.until(lambda: len(queue.completed) == 50)
    assert sorted(queue.completed) == [item.id for item in seen] == ids
    assert len(queue.server.asked["queue.complete"]) < 50
    assert not queue.retried


async def test_plain_functions_run_in_threads(queue: QueueDouble, worker: Worker) -> None:
    """Plain functions run beside each other, away from the event loop, and complete in the same way."""
    meeting = threading.Barrier(3, timeout=30)
    threads: set[str] = set()

    @worker.handler("mail", concurrency=3)
    def handle(item: ReservedItem) -> None:
        meeting.wait()
        threads.add(threading.current_thread().name)

    queue.put("a", "b", "c")
    async with serving(worker):
        await queue.server.until(lambda: len(queue.completed) == 3)
    assert len(threads) == 3
    assert threading.current_thread().name not in threads


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no"), {"id": "a"}),
        (Reject("never"), {"id": "a", "dead": True}),
        (
            RetryLater(at=datetime(2031, 1, 1, tzinfo=UTC)),
            {"id": "a", "retry_at": "2031-01-01T00:00:00Z"},
        ),
    ],
)
async def test_a_handler_that_raises_gives_back(
    queue: QueueDouble, worker: Worker, error: Exception, told: dict[str, Any]
) -> None:
    """An exception retries as the queue's policy says, `Reject` makes dead, `RetryLater` names the time."""

    @worker.handler("mail")
    async def handle(item: ReservedItem) -> None:
        raise error

    queue.put("a")
    async with serving(worker):
        await queue.server.until(lambda: bool(queue.retried))
    assert queue.retried == [told]
    assert not queue.completed


async def test_retry_later_with_a_delay_counts_from_now(queue: QueueDouble, worker: Worker) -> None:
    """A delay becomes an instant that lies that much ahead."""

    @worker.handler("mail")
    async def handle(item: ReservedItem) -> None:
        raise RetryLater("1h")

    queue.put("a")
    before = to_instant(SystemClock().now_ms())
    async with serving(worker):
        await queue.server.until(lambda: bool(queue.retried))
    ahead = datetime.fromisoformat(queue.retried[0]["retry_at"]) - before
    assert 3500 < ahead.total_seconds() < 3700


async def test_leases_are_renewed_while_handlers_run(queue: QueueDouble, worker: Worker) -> None:
    """A lease much shorter than the work is renewed for as long as the handler runs, and the item completed."""
    queue.lease_timeout = "90ms"

    @worker.handler("mail", concurrency=2)
    async def handle(item: ReservedItem) -> None:
        await queue.server.until(lambda: len(queue.server.asked["queue.renew"]) >= 3)

    queue.put("a", "b")
    async with serving(worker):
        await queue.server.until(lambda: len(queue.completed) == 2)
    assert queue.server.asked["queue.reserve"][0]["lease_timeout"] == "90ms"
    assert queue.server.asked["queue.renew"][0]["lease_timeout"] == "90ms"


async def test_a_lost_lease_cancels_the_handler(queue: QueueDouble, worker: Worker) -> None:
    """When the server no longer knows the lease the async handler is cancelled, and nothing is told of the item."""
    queue.lease_timeout = "90ms"
    queue.lost = {"a"}
    cancelled = asyncio.Event()
    other = asyncio.Event()

    @worker.handler("mail", concurrency=2)
    async def handle(item: ReservedItem) -> None:
        if item.id == "b":
            await other.wait()
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    queue.put("a", "b")
    async with serving(worker):
        await cancelled.wait()
        other.set()
        await queue.server.until(lambda: bool(queue.completed))
    assert queue.completed == ["b"]
    assert not queue.retried


async def test_a_lost_lease_of_a_thread_is_not_completed(queue: QueueDouble, worker: Worker) -> None:
    """A plain function cannot be cancelled; what it did after its lease was lost is not reported."""
    queue.lease_timeout = "90ms"
    queue.lost = {"a"}
    gate = threading.Event()

    @worker.handler("mail", concurrency=1)
    def handle(item: ReservedItem) -> None:
        if item.id == "a":
            assert gate.wait(30)

    queue.put("a", "b")
    async with serving(worker):
        await queue.server.until(lambda: bool(queue.server.asked["queue.renew"]))
        gate.set()
        await queue.server.until(lambda: bool(queue.completed))
    assert [asked["ids"] for asked in queue.server.asked["queue.complete"]] == [["b"]]


async def test_an_unreachable_server_costs_the_lease(queue: QueueDouble, worker: Worker) -> None:
    """If renewing fails until the lease must be over, the handler is cancelled as well."""
    queue.lease_timeout = "90ms"
    queue.server.script("queue.renew", [errors.Overloaded("busy")])
    cancelled = asyncio.Event()

    @worker.handler("mail")
    async def handle(item: ReservedItem) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    queue.put("a")
    async with serving(worker):
        await cancelled.wait()
    assert not queue.completed
    assert not queue.retried


async def test_one_stale_item_does_not_hold_up_the_others(queue: QueueDouble, worker: Worker) -> None:
    """A complete is all or nothing: if one id of it is no longer leased, the others are completed without it."""
    gate = asyncio.Event()
    queue.lost = {"b"}

    @worker.handler("mail", concurrency=3)
    async def handle(item: ReservedItem) -> None:
        await gate.wait()

    queue.put("a", "b", "c")
    async with serving(worker):
        await queue.server.until(lambda: bool(queue.server.asked["queue.reserve"]))
        gate.set()
        await queue.server.until(lambda: len(queue.completed) == 2)
    assert sorted(queue.completed) == ["a", "c"]


async def test_stopping_gives_back_what_was_not_started(queue: QueueDouble, worker: Worker) -> None:
    """On stop what runs is finished and completed, what was only fetched goes back at once."""
    started = asyncio.Event()
    gate = asyncio.Event()

    @worker.handler("mail", concurrency=1, batch_size=3)
    async def handle(item: ReservedItem) -> None:
        started.set()
        await gate.wait()

    queue.put("a", "b", "c")
    async with serving(worker):
        await started.wait()
        worker.stop()
        await queue.server.until(lambda: len(queue.retried) == 2)
        gate.set()
    assert sorted(item["id"] for item in queue.retried) == ["b", "c"]
    assert all("retry_at" in item for item in queue.retried)
    assert queue.completed == ["a"]


async def test_the_grace_ends(queue: QueueDouble) -> None:
    """A handler that does not end within the grace is cancelled, and its item given back at once."""
    started = asyncio.Event()
    async with Client(queue.server.url, backoff=QUICK) as client:
        worker = Worker(client, grace="10ms", handle_signals=False)

        @worker.handler("mail")
        async def handle(item: ReservedItem) -> None:
            started.set()
            await asyncio.Event().wait()

        queue.put("a")
        async with serving(worker):
            await started.wait()
    assert [item["id"] for item in queue.retried] == ["a"]
    assert not queue.completed


async def test_a_second_stop_does_not_wait(queue: QueueDouble, worker: Worker) -> None:
    """Stopping twice ends the grace."""
    started = asyncio.Event()

    @worker.handler("mail")
    async def handle(item: ReservedItem) -> None:
        started.set()
        await asyncio.Event().wait()

    queue.put("a")
    async with serving(worker):
        await started.wait()
        worker.stop()
        worker.stop()
    assert [item["id"] for item in queue.retried] == ["a"]


async def test_signals_stop(queue: QueueDouble) -> None:
    """SIGTERM stops a worker as `stop` does, and its own client is closed."""
    worker = Worker(queue.server.url)

    @worker.handler("mail")
    async def handle(item: ReservedItem) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    queue.put("a")
    async with asyncio.timeout(30):
        await worker.serve()
    assert queue.completed == ["a"]
    with pytest.raises(RuntimeError, match="closed"):
        await worker._client.health()


async def test_a_queue_that_does_not_exist_ends_the_worker(queue: QueueDouble, worker: Worker) -> None:
    """An error that no waiting mends is raised by `serve`, after the other handlers have stopped."""
    queue.server.on("queues.info", _missing_other)

    @worker.handler("mail")
    async def handle(item: ReservedItem) -> None: ...

    @worker.handler("other")
    async def handle_other(item: ReservedItem) -> None: ...

    async with asyncio.timeout(30):
        with pytest.raises(errors.NoSuchQueue, match="other"):
            await worker.serve()


def _missing_other(body: dict[str, Any]) -> dict[str, Any]:
    if body["queue_name"] == "other":
        raise errors.NoSuchQueue("other")
    return {"queue_name": "mail", "lease_timeout": "1h"}


async def test_a_server_that_comes_later_is_waited_for(queue: QueueDouble, worker: Worker) -> None:
    """A worker that is up before its server begins when the server answers."""
    queue.server.script("queues.info", [errors.Overloaded("starting")] * 2 + [{"lease_timeout": "1h"}])

    @worker.handler("mail")
    async def handle(item: ReservedItem) -> None: ...

    queue.put("a")
    async with serving(worker):
        await queue.server.until(lambda: queue.completed == ["a"])


def test_wrong_handlers_are_refused() -> None:
    """Two handlers for a queue, none at all, or no concurrency is an error at once."""
    worker = Worker("http://127.0.0.1:1")

    async def handle(item: ReservedItem) -> None: ...

    with pytest.raises(ValueError, match="at least one handler"):
        worker.run()
    worker.handler("mail")(handle)
    with pytest.raises(ValueError, match="already"):
        worker.handler("mail")
    with pytest.raises(ValueError, match="at least 1"):
        worker.handler("other", concurrency=0)
    with pytest.raises(ValueError, match="either"):
        RetryLater()


async def test_an_awaitable_of_a_plain_function_is_awaited(queue: QueueDouble, worker: Worker) -> None:
    """A plain callable that returns an awaitable (a partial, an object with async `__call__`) is handled to its end."""
    done: list[str] = []

    async def work(item: ReservedItem) -> None:
        done.append(item.id)

    def handle(item: ReservedItem) -> Awaitable[None]:
        return work(item)

    worker.handler("mail")(handle)
    queue.put("a")
    async with serving(worker):
        await queue.server.until(lambda: queue.completed == ["a"])
    assert done == ["a"]
