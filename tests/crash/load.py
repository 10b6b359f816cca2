"""Producers and consumers that do everything that clients do, good and bad, while the server comes and goes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

import aiohttp

from querator.clock import Clock, SystemClock
from querator.durations import format_duration
from tests.crash.client import Answer, Client, Held, Place, Surprise
from tests.crash.server import Server
from tests.history.checker import Report, check
from tests.history.events import Counted, Event, QueueFacts
from tests.history.recorder import Recorder

LEASE_MS = 2000
PLAIN = QueueFacts(queue="plain", partitions=1, lease_timeout_ms=LEASE_MS)
WIDE = QueueFacts(queue="wide", partitions=4, lease_timeout_ms=LEASE_MS)
DEAD = QueueFacts(queue="dead", partitions=1, lease_timeout_ms=LEASE_MS)
MORTAL = QueueFacts(queue="mortal", partitions=2, lease_timeout_ms=LEASE_MS, max_attempts=3, dead_queue="dead")
ORDERED = QueueFacts(queue="ordered", partitions=1, lease_timeout_ms=LEASE_MS)
QUEUES = (PLAIN, WIDE, DEAD, MORTAL, ORDERED)  # a dead queue before those that name it

PATIENT_MS = (10_000,)  # every produce waits until the server is there again

_PATIENCE_S = 120
_PAUSE_S = 0.02
_STUCK_MS = 30_000  # far above every lease, schedule and retry here


class Counts(NamedTuple):
    """What the server says about all queues."""

    items: int  # ready, leased and scheduled
    outbox: int
    waiting: int  # reserves that wait


class Clients:
    """They write one history together. ``place_of`` says where the one with this name sends its calls."""

    def __init__(
        self,
        place_of: Callable[[str], Place],
        session: aiohttp.ClientSession,
        seed: int,
        queues: Iterable[QueueFacts],
        produce_timeouts_ms: Sequence[int],
    ) -> None:
        self._place_of = place_of
        self.produce_timeouts_ms = produce_timeouts_ms
        self.clock: Clock = SystemClock()
        self.queues = tuple(queues)
        self.events: list[Event] = list(self.queues)
        self.going_home = asyncio.Event()
        self._session = session
        self._seeds = random.Random(seed)
        self._rounds = 0
        self._wanted: tuple[int, asyncio.Future[None]] | None = None

    def client(self, name: str) -> Client:
        return Client(self._place_of(name), self._session, Recorder(name, self.clock, self.events.append))

    async def create_queues(self, **options: object) -> None:
        """``options`` are of all of them."""
        for facts in self.queues:
            await self._control(
                "queues.create",
                queue_name=facts.queue,
                requested_partitions=facts.partitions,
                lease_timeout=format_duration(facts.lease_timeout_ms),
                max_attempts=facts.max_attempts,
                dead_queue=facts.dead_queue,
                **options,
            )

    async def _control(self, name: str, **fields: object) -> Answer:
        answer = await self.client("control").post(name, fields)
        if answer.status != 200:
            raise Surprise(f"{name} was answered {answer.text}")
        return answer

    @asynccontextmanager
    async def at_work(self, producers: int, consumers: int) -> AsyncIterator[None]:
        """Load on all queues meanwhile. In the end every client finishes what it is doing."""
        async with asyncio.TaskGroup() as group:
            shared = tuple(facts for facts in self.queues if facts is not ORDERED)
            living = tuple(facts for facts in shared if facts is not DEAD)
            for number in range(producers):
                group.create_task(self._work(_Producer(self, f"p{number}", living)))
            for number in range(consumers):
                group.create_task(self._work(_Consumer(self, f"c{number}", shared)))
            if ORDERED in self.queues:
                group.create_task(self._work(_Producer(self, "po", (ORDERED,))))
                group.create_task(self._work(_Consumer(self, "co", (ORDERED,))))
            try:
                yield
            finally:
                self.going_home.set()

    def rng(self) -> random.Random:
        return random.Random(self._seeds.random())

    async def _work(self, worker: _Worker) -> None:
        going_home = asyncio.create_task(self.going_home.wait())
        up: asyncio.Task[bool] | None = None
        try:
            while not self.going_home.is_set():
                up = asyncio.create_task(worker.client.place.up.wait())
                await asyncio.wait({going_home, up}, return_when=asyncio.FIRST_COMPLETED)
                if up.done():
                    await worker()
                    self._count_round()
        finally:
            going_home.cancel()
            if up is not None:
                up.cancel()

    def _count_round(self) -> None:
        self._rounds += 1
        if self._wanted is not None and self._rounds >= self._wanted[0] and not self._wanted[1].done():
            self._wanted[1].set_result(None)

    async def rounds(self, count: int) -> None:
        """Wait until the clients have done so many more rounds, all together."""
        self._wanted = (self._rounds + count, asyncio.get_running_loop().create_future())
        async with asyncio.timeout(_PATIENCE_S):
            await self._wanted[1]

    async def counts(self) -> Counts:
        items = outbox = waiting = 0
        for facts in self.queues:
            answer = await self._stats(facts.queue)
            for logical_queue in answer.body.get("logicalQueues", []):
                waiting += logical_queue.get("lease_waiting", 0)
                for partition in logical_queue["partitions"]:
                    items += partition.get("total", 0) + partition.get("scheduled", 0)
                    outbox += partition.get("outbox", 0)
        return Counts(items, outbox, waiting)

    async def _stats(self, queue: str) -> Answer:
        """Of the whole queue."""
        async with asyncio.timeout(_PATIENCE_S):
            while (answer := await self._control("queue.stats", queue_name=queue)).body.get("partial"):
                await asyncio.sleep(_PAUSE_S)
        return answer

    async def count(self) -> None:
        """Write down what the server counts, once nothing moves between the queues while they are asked."""
        before = await self.counts()
        async with asyncio.timeout(_PATIENCE_S):
            while (counts := await self.counts()) != before or counts.outbox:
                before = counts
        self.events.append(Counted(at_ms=self.clock.now_ms(), items=counts.items))

    async def drain(self) -> None:
        """Reserve and complete whatever there is, until the server says that there is nothing more.

        What it counts and does not hand out, long after every lease has run out, is for the checker to judge.
        """
        drainer = self.client("drain")
        given_up_at_ms = self.clock.now_ms() + _STUCK_MS
        while (counts := await self.counts()).items or counts.outbox:
            for facts in self.queues:
                while held := await drainer.reserve(facts.queue, 1000, timeout_ms=50):
                    await drainer.complete(held)
                    given_up_at_ms = self.clock.now_ms() + _STUCK_MS
            if self.clock.now_ms() > given_up_at_ms:
                break
        self.events.append(Counted(at_ms=self.clock.now_ms(), items=counts.items + counts.outbox, drained=True))

    def check(self) -> Report:
        return check(self.events)


class Crew(Clients):
    """All clients of one server."""

    def __init__(
        self,
        server: Server,
        session: aiohttp.ClientSession,
        seed: int,
        queues: Iterable[QueueFacts],
        produce_timeouts_ms: Sequence[int],
    ) -> None:
        super().__init__(lambda _: server, session, seed, queues, produce_timeouts_ms)
        self.server = server


def _batch_size(rng: random.Random, most: int) -> int:
    """Small ones as often as large ones."""
    return int((most + 1) ** rng.random())


def _hang_up_s(rng: random.Random) -> float | None:
    """Now and then a client does not wait for the answer."""
    return rng.uniform(0.0001, 0.02) if rng.random() < 0.02 else None


class _Worker(Protocol):
    client: Client

    async def __call__(self) -> None: ...


class _Producer:
    def __init__(self, crew: Clients, name: str, queues: tuple[QueueFacts, ...]) -> None:
        self._crew = crew
        self.client = crew.client(name)
        self._rng = crew.rng()
        self._queues = queues

    async def __call__(self) -> None:
        rng = self._rng
        count = _batch_size(rng, 50)
        scheduled = rng.randrange(count + 1) if rng.random() < 0.2 else 0
        now_ms = self._crew.clock.now_ms()
        due_at_ms = [now_ms + rng.randrange(10, 1500) for _ in range(scheduled)]
        queue = rng.choice(self._queues).queue
        timeout_ms = rng.choice(self._crew.produce_timeouts_ms)
        await self.client.produce(queue, count, due_at_ms=due_at_ms, timeout_ms=timeout_ms, hang_up_s=_hang_up_s(rng))


class _Consumer:
    def __init__(self, crew: Clients, name: str, queues: tuple[QueueFacts, ...]) -> None:
        self._crew = crew
        self.client = crew.client(name)
        self._rng = crew.rng()
        self._queues = queues
        self._in_doubt: list[Held] = []  # of a complete whose answer was lost

    async def __call__(self) -> None:
        rng = self._rng
        if self._in_doubt:
            in_doubt, self._in_doubt = self._in_doubt, []
            await self.client.complete(in_doubt)
        queue = rng.choice(self._queues).queue
        timeout_ms = rng.randrange(10, 300)
        held = await self.client.reserve(queue, _batch_size(rng, 80), timeout_ms=timeout_ms, hang_up_s=_hang_up_s(rng))
        if held:
            await self._use(held)

    async def _use(self, held: list[Held]) -> None:
        """Mostly as one should: else in part, late, or not at all."""
        rng = self._rng
        way = rng.random()
        if way < 0.1:
            return  # the leases run out
        if way < 0.2:
            await self.client.renew(held, rng.choice([LEASE_MS // 2, 2 * LEASE_MS]))
        if way < 0.4:
            rng.shuffle(held)
            some = rng.randrange(len(held))
            await self._give_back(held[:some])
            held = held[some:]
        if way > 0.9:
            held = held[: rng.randrange(1, len(held) + 1)]
        if await self.client.complete(held, hang_up_s=_hang_up_s(rng)) == "unknown":
            self._in_doubt = held

    async def _give_back(self, held: list[Held]) -> None:
        if not held:
            return
        way = self._rng.random()
        if way < 0.3:
            await self.client.retry(held, dead=held[0].queue == MORTAL.queue)
        elif way < 0.6:
            await self.client.retry(held, retry_at_ms=self._crew.clock.now_ms() + self._rng.randrange(10, 1500))
        else:
            await self.client.retry(held)


@asynccontextmanager
async def crew_of(
    server: Server,
    seed: int,
    queues: Iterable[QueueFacts] = QUEUES,
    produce_timeouts_ms: Sequence[int] = PATIENT_MS,
) -> AsyncIterator[Crew]:
    async with unhurried_session() as session:
        yield Crew(server, session, seed, queues, produce_timeouts_ms)


def unhurried_session() -> aiohttp.ClientSession:
    """For any number of calls at once, each of which has its own patience."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout())
