"""Who takes part: our server, the limits and the peers. Each runs a round on fresh ground and checks its items."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from bench import peers_beanstalkd, postgres_server
from bench.generator import Timing, generate
from bench.measure import Load, Measurement
from bench.proc import memory
from bench.rounds import Case, Contestant, ItemsLost, Round, merge
from bench.server_process import Control, ServerProcess

LIMITS = ("sqlite rows", "sqlite blocks")
ROWS = LIMITS[0]
SERVER = "server"
DATABASE = "database"  # the processes of a database server, where it is not the contestant itself
OnMissing = Callable[[str], None]


def split_load(load: Load, processes: int) -> list[Load]:
    """Divide the clients over several processes, each with its own part of the rate and of the numbers."""
    shares = [load.clients // processes + (index < load.clients % processes) for index in range(processes)]
    starts = [sum(shares[:index]) for index in range(processes)]
    return [
        Load(
            **{
                **{name: getattr(load, name) for name in Load.__dataclass_fields__},
                "clients": share,
                "first_client": start,
                "rate": load.rate * share / load.clients,
                "total": load.total * share // load.clients,
                "watched": load.watched if start == 0 else {},
            }
        )
        for share, start in zip(shares, starts, strict=True)
        if share
    ]


class Querator:
    """A server that we started, or one that runs already at an address."""

    def __init__(
        self, name: str, address: str, pid: int | None = None, role: str = "querator", database: int | None = None
    ) -> None:
        self.name = name
        self.role = role
        self._address = address
        self._pid = pid
        self._watched = _watched(server=pid, database=database)
        self._queues = itertools.count(1)

    def takes(self, case: Case) -> bool:  # noqa: ARG002 - part of the protocol
        return True

    def run(self, case: Case, timing: Timing) -> Round:
        control = Control(self._address)
        queue_name = f"bench-{case.workload}-{next(self._queues)}"
        self.create(control, queue_name, case)
        try:
            return self.run_on(control, queue_name, case, timing)
        finally:
            control.delete(queue_name)
            control.close()

    def create(self, control: Control, queue_name: str, case: Case) -> None:
        control.create(queue_name, case.partitions)

    def run_on(self, control: Control, queue_name: str, case: Case, timing: Timing) -> Round:
        """A round on a queue that may hold items already; after it, it holds as many as before."""
        before = control.waiting(queue_name)
        measurements = generate(self.loads(case, queue_name), timing)
        produced = sum(one.produced for one in measurements)
        completed = sum(one.completed for one in measurements)
        waiting = control.waiting(queue_name)
        if waiting != before + produced - completed:
            raise ItemsLost(f"{before} + {produced} produced - {completed} completed, but {waiting} are in the queue")
        if case.workload != "produce":
            self._take_rest(control, queue_name, measurements, waiting - before, numbered=case.numbered)
            if control.waiting(queue_name) != before:
                raise ItemsLost(f"{control.waiting(queue_name)} items are left where {before} should be")
        resident = memory(self._pid).resident_bytes if self._pid else 0
        return merge(measurements, produce_only=case.workload == "produce", memory_bytes=resident)

    def loads(self, case: Case, queue_name: str, total: int = 0) -> list[Load]:
        load = Load(
            target="querator",
            workload="fill" if total else case.workload,
            address=self._address,
            queue_name=queue_name,
            batch=case.batch,
            clients=case.clients,
            total=total,
            rate=case.rate,
            numbered=case.numbered,
            watched=self._watched,
        )
        return split_load(load, case.processes)

    def _take_rest(
        self, control: Control, queue_name: str, measurements: list[Measurement], rest: int, *, numbered: bool
    ) -> None:
        """A reserve may get less than it asked for; what that leaves behind must still be there, each item once."""
        numbers = control.drain(queue_name, rest)
        if not numbered:
            return
        for measurement in measurements:
            numbers += measurement.seen
        produced = sum(one.produced for one in measurements)
        if len(set(numbers)) != len(numbers):
            raise ItemsLost(f"{len(numbers) - len(set(numbers))} items came twice")
        if len(numbers) != produced:
            raise ItemsLost(f"{produced} items were produced, {len(numbers)} came out")


def _watched(**processes: int | None) -> dict[str, int]:
    """Those of a server and a database that are known."""
    return {name: pid for name, pid in processes.items() if pid is not None}


class Single:
    """A limit or a peer: one process of load, whose driver looks itself whether anything is left.

    It gets as many clients as the case has, unless it is told how many are best for it.
    """

    def __init__(
        self,
        name: str,
        role: str,
        address: str,
        *,
        pid: int | None = None,
        database: int | None = None,
        max_batch: int = 1000,
        clients: int | None = None,
    ) -> None:
        self.name = name
        self.role = role
        self._max_batch = max_batch
        self._address = address
        self._clients = clients
        self._watched = _watched(server=pid, database=database)
        self._queues = itertools.count(1)

    def takes(self, case: Case) -> bool:
        """Limits and peers only know full cycles."""
        return case.workload == "cycle" and case.batch <= self._max_batch

    def run(self, case: Case, timing: Timing) -> Round:
        load = Load(
            target=self.name,
            workload=case.workload,
            address=self._address,
            queue_name=f"bench-{self.name.replace(' ', '-')}-{next(self._queues)}",
            batch=case.batch,
            clients=self._clients or case.clients,
            watched=self._watched,
        )
        result = merge(generate([load], timing), produce_only=False)
        if result.produced != result.completed:
            raise ItemsLost(f"{self.name}: {result.produced} items were produced, {result.completed} completed")
        return result


def limits(folder: Path) -> list[Contestant]:
    address = tempfile.mkdtemp(prefix="limits-", dir=folder)
    return [Single(name, "limit", address) for name in LIMITS]


class _Peer(Protocol):
    address: str

    def start(self) -> None: ...
    def pid(self) -> int: ...
    def stop(self) -> None: ...


@contextmanager
def peers(folder: Path, on_missing: OnMissing) -> Iterator[list[Contestant]]:
    """The peers that are installed, started. Those that are missing are named with what would install them."""
    with ExitStack() as stack:
        found: list[Contestant] = []
        kinds: list[tuple[str, Callable[[], object | None], Callable[[Path], _Peer], str, int]] = [
            ("postgres", postgres_server.installed, postgres_server.Postgres, postgres_server.INSTALL, 1000),
            # With an fsync per item, a batch of 1000 from each of 8 clients takes longer than a round.
            ("beanstalkd", peers_beanstalkd.installed, peers_beanstalkd.Beanstalkd, peers_beanstalkd.INSTALL, 100),
        ]
        for name, installed, make, install, max_batch in kinds:
            if installed() is None:
                on_missing(f"{name} is not installed and is left out; to have it: {install}")
                continue
            peer = make(folder / name)
            stack.callback(peer.stop)
            peer.start()
            found.append(Single(name, "peer", peer.address, pid=peer.pid(), max_batch=max_batch))
        yield found


class Database(NamedTuple):
    """What a backend keeps its partitions in, if that is a server of its own."""

    options: Mapping[str, object]  # of the backend
    pid: int | None


@contextmanager
def database(folder: Path, driver: str) -> Iterator[Database]:
    """What the driver needs, made in the folder."""
    if driver != "postgres":
        yield Database({}, None)
        return
    server = postgres_server.Postgres(folder)
    server.start()
    try:
        yield Database({"dsn": server.address}, server.pid())
    finally:
        server.stop()


@contextmanager
def served(folder: Path, driver: str, url: str | None) -> Iterator[Querator]:
    """Our server: started here, unless one runs already at the URL."""
    if url is not None:
        address = url.removeprefix("http://").rstrip("/")
        yield Querator(f"server at {address}", address)
        return
    with database(folder / f"database-{driver}", driver) as below, serve_on(below, folder, driver) as querator:
        yield querator


@contextmanager
def serve_on(below: Database, folder: Path, driver: str) -> Iterator[Querator]:
    server = ServerProcess(folder / f"querator-{driver}", driver, storage=below.options)
    server.start()
    try:
        yield Querator(f"querator ({driver})", server.address, server.process.pid, database=below.pid)
    finally:
        server.stop()


# The configuration that takes one part away.
PARTS: Mapping[str, Mapping[str, object]] = {
    "without fast door": {"fast_door": False},
    "without blocks": {"limits": {"block_items": 1}},
}


@contextmanager
def without_parts(folder: Path, driver: str) -> Iterator[list[Contestant]]:
    """Our server several times, each without one of the parts that are to make it fast."""
    with ExitStack() as stack:
        found: list[Contestant] = []
        for name, options in PARTS.items():
            place = folder / name.replace(" ", "-")
            below = stack.enter_context(database(place.with_suffix(".database"), driver))
            server = ServerProcess(place, driver, options, below.options)
            stack.callback(server.stop)
            server.start()
            found.append(Querator(name, server.address, server.process.pid, role="part", database=below.pid))
        yield found
