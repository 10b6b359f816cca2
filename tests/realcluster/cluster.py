"""A cluster of three processes on a private etcd and a private PostgreSQL, with a wire on every way between them."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from bench.etcd_server import Etcd
from bench.postgres_server import USER, Postgres
from tests.crash.client import Client, Held
from tests.crash.load import LEASE_MS, PATIENT_MS, Clients, unhurried_session
from tests.history.events import QueueFacts
from tests.realcluster.instance import PATIENCE_S, PAUSE_S, Instance
from tests.realcluster.wires import Flow, Wire, process_of
from tests.schemas import new_schema

LEASE_S = 3  # of the membership
NAMES = ("a", "b", "c")
SPREAD = QueueFacts(queue="spread", partitions=12, lease_timeout_ms=LEASE_MS)
_LOGICAL_QUEUES = "6"
_LONG_MS = 600_000  # longer than any test here


class Cluster:
    def __init__(self, etcd: Etcd, database: Postgres, folder: Path, session: aiohttp.ClientSession) -> None:
        self.etcd = etcd
        self.queues: list[str] = []  # that are in use
        self.instances = [Instance(name, folder / name, session) for name in NAMES]
        self._schema = new_schema()
        etcd_port = int(etcd.endpoint.rpartition(":")[2])
        self._to_etcd = {name: Wire(etcd_port) for name in NAMES}
        self._to_database = {name: Wire(database.port) for name in NAMES}
        self._to_peer = {each.name: Wire(each.peer_port, self._whose) for each in self.instances}

    def __getitem__(self, name: str) -> Instance:
        return self.instances[NAMES.index(name)]

    def _whose(self, near_port: int, far_port: int) -> str:
        pids = {each.pid: each.name for each in self.instances if each.pid}
        return pids.get(process_of(near_port, far_port, list(pids)), "")

    async def start(self, stack: AsyncExitStack) -> None:
        for wire in (*self._to_etcd.values(), *self._to_database.values(), *self._to_peer.values()):
            await wire.start()
            stack.push_async_callback(wire.close)
        for each in self.instances:
            each.configure(cluster=self._membership(each), storage=[self._backend(each)])
            stack.push_async_callback(each.close)
        await asyncio.gather(*(each.start() for each in self.instances))
        await self.until_members(len(NAMES))

    def _membership(self, each: Instance) -> dict[str, Any]:
        return {
            "coordinator": "etcd",
            "endpoints": [self._to_etcd[each.name].address],
            "prefix": f"/{self._schema}/",
            "listen": f"127.0.0.1:{each.peer_port}",
            "advertise": self._to_peer[each.name].address,
            "lease_timeout": f"{LEASE_S}s",
        }

    def _backend(self, each: Instance) -> dict[str, Any]:
        """It gives up soon on a database that is silent, so that a test need not wait for that."""
        dsn = f"postgresql://{USER}@{self._to_database[each.name].address}/postgres"
        options = {"dsn": dsn, "schema": self._schema, "connect_timeout": "1s", "command_timeout": "2s"}
        return {"name": "pg", "driver": "postgres", "options": options}

    # Who is there and owns what, as an instance sees it.

    async def names(self, at: Instance) -> dict[str, str]:
        """The name of each member by its id."""
        info = await at.call("cluster.info", {})
        by_address = {each.address: each.name for each in self.instances}
        return {each["id"]: by_address.get((each.get("addresses") or [""])[0], "") for each in info["instances"]}

    async def leader(self, at: Instance) -> Instance:
        """The one that leads, once there is one."""
        found = ""

        async def is_known() -> bool:
            nonlocal found
            info = await at.call("cluster.info", {})
            found = (await self.names(at)).get(info.get("leader", ""), "")
            return bool(found)

        await until(is_known, "there is a leader")
        return self[found]

    async def owners(self, queue: str, at: Instance) -> dict[int, str]:
        """The name of who owns each partition."""
        names = await self.names(at)
        route = await at.call("cluster.route", {"queue_name": queue})
        return {each.get("partition", 0): names.get(each.get("instance", ""), "") for each in route["partitions"]}

    async def until_members(self, count: int) -> None:
        """Until every instance that runs sees so many, with their addresses."""

        async def all_see() -> bool:
            views = [await self.names(each) for each in self.running]
            return all(len(set(view.values()) - {""}) == count for view in views)

        await until(all_see, f"{count} instances see each other")

    async def until_spread(self, over: Iterable[str] = NAMES) -> None:
        """Until these and nobody else own something, all of them agree on it, and all partitions are open."""
        wanted = set(over)

        async def is_spread() -> bool:
            views = [await self._owners(self[name]) for name in wanted]
            return (
                set(views[0].values()) == wanted and views.count(views[0]) == len(views) and await self._is_open(wanted)
            )

        await until(is_spread, f"{sorted(wanted)} have everything")

    async def _owners(self, at: Instance) -> dict[tuple[str, int], str]:
        """The name of who owns each logical queue."""
        names = await self.names(at)
        info = await at.call("cluster.info", {})
        return {
            (each["queue_name"], each.get("number", 0)): names.get(each.get("instance", ""), "")
            for each in info["logical_queues"]
        }

    async def _is_open(self, names: Iterable[str]) -> bool:
        at = self[min(names)]
        return all([_is_whole(await at.call("queue.stats", {"queue_name": each})) for each in self.queues])

    @property
    def running(self) -> list[Instance]:
        return [each for each in self.instances if each.up.is_set()]

    # Faults.

    @asynccontextmanager
    async def parted(self, one: str, other: str, flow: Flow) -> AsyncIterator[None]:
        """Nothing goes between two instances, either way."""
        async with self._without([(self._to_peer[other], one), (self._to_peer[one], other)], flow):
            yield

    @asynccontextmanager
    async def without_etcd(self, name: str, flow: Flow) -> AsyncIterator[None]:
        async with self._without([(self._to_etcd[name], "")], flow):
            yield

    @asynccontextmanager
    async def without_database(self, name: str, flow: Flow) -> AsyncIterator[None]:
        async with self._without([(self._to_database[name], "")], flow):
            yield

    @asynccontextmanager
    async def _without(self, ways: list[tuple[Wire, str]], flow: Flow) -> AsyncIterator[None]:
        for wire, caller in ways:
            await wire.let(flow, caller)
        try:
            yield
        finally:
            for wire, caller in ways:
                await wire.let(Flow.OPEN, caller)


class AnyInstance:
    """A place that is another instance at every call, of those that are up."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.up = asyncio.Event()
        self.up.set()

    @property
    def url(self) -> str:
        return self._rng.choice(self._cluster.running or self._cluster.instances).url


class Probe:
    """Holds an item of every partition of a queue, and so can find out at any time which of them take a change."""

    def __init__(self, crew: Clients, cluster: Cluster) -> None:
        self._crew = crew
        self._cluster = cluster
        self._held: dict[int, list[Held]] = {}
        self._clients: dict[int, Client] = {}

    async def hold(self, facts: QueueFacts) -> None:
        """Before others use the queue."""
        client = self._crew.client("holder")
        async with asyncio.timeout(PATIENCE_S):
            while len(self._held) < facts.partitions:
                for client.place in self._cluster.instances:
                    for _ in range(facts.partitions):
                        await client.produce(facts.queue, 1)
                while held := await client.reserve(facts.queue, 1000, lease_timeout_ms=_LONG_MS):
                    kept = held[:1] if held[0].partition not in self._held else []
                    self._held.update({each.partition: [each] for each in kept})
                    if surplus := held[len(kept) :]:
                        await client.complete(surplus)
        self._clients = {number: self._crew.client(f"probe-{number}") for number in self._held}

    async def seconds_until_all_answer(self, at: Instance) -> float:
        """From now until each partition has taken a change."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(_renew(client, self._held[n], at) for n, client in self._clients.items()))
        return loop.time() - began_s

    def take(self, number: int) -> list[Held]:
        """What is held of one partition, which is then no more the probe's."""
        return self._held.pop(number)

    async def let_go(self) -> None:
        for number, held in self._held.items():
            while await self._clients[number].complete(held) == "unknown":
                await asyncio.sleep(PAUSE_S)


async def _renew(client: Client, held: list[Held], at: Instance) -> None:
    client.place = at
    while (outcome := await client.renew(held, _LONG_MS, hang_up_s=1.0)) != "ok":
        assert outcome == "unknown", "an item that is held stays held"
        await asyncio.sleep(PAUSE_S)


def _is_whole(stats: dict[str, Any]) -> bool:
    states = [part["state"] for each in stats.get("logicalQueues", []) for part in each["partitions"]]
    return not stats.get("partial") and set(states) == {"available"}


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """An instance that does not answer is asked again."""
    failure = ""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if await holds():
                        return
                except (aiohttp.ClientError, TimeoutError, AssertionError) as error:
                    failure = repr(error)
                await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        raise AssertionError(f"waited in vain until {what}; {failure}") from None


@asynccontextmanager
async def cluster_in(folder: Path, etcd: Etcd, database: Postgres) -> AsyncIterator[Cluster]:
    """Started, and gone afterwards. What the instances said last is shown if the test fails."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        cluster = Cluster(etcd, database, folder, session)
        await cluster.start(stack)
        try:
            yield cluster
        finally:
            for each in cluster.instances:
                sys.stdout.write(f"the last words of '{each.name}':\n{each.last_words()}\n")


@asynccontextmanager
async def crew_on(
    cluster: Cluster, seed: int, queues: Iterable[QueueFacts], produce_timeouts_ms: Sequence[int] = PATIENT_MS
) -> AsyncIterator[Clients]:
    """Clients of all instances: every fourth goes anywhere at each call, the others stay with one instance."""
    rng = random.Random(seed)

    def place_of(name: str) -> Instance | AnyInstance:
        number = int("".join(each for each in name if each.isdigit()) or 3)
        return AnyInstance(cluster, random.Random(rng.random())) if number % 4 == 3 else cluster.instances[number % 4]

    async with unhurried_session() as session:
        crew = Clients(place_of, session, seed, queues, produce_timeouts_ms)
        await crew.create_queues(logical_queues=_LOGICAL_QUEUES)
        cluster.queues = [facts.queue for facts in crew.queues]
        await cluster.until_spread()
        yield crew
