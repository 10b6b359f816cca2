"""The coordinators that the coordination suite is run against. A new one adds an entry to `RIGS`.

Test modules import the fixtures that they use.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from bench.etcd_server import INSTALL, Etcd, installed
from cluster.coordinator import Change, CoordinationError, Coordinator, Entry, Snapshot
from cluster.etcd import EtcdCoordinator
from cluster.etcd_calls import COMPACT
from cluster.etcd_options import EtcdOptions
from cluster.etcd_proto import etcd_rpc_pb2 as rpc
from cluster.one_host import OneHostCoordinator

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
SHORT_MS = 2000  # the shortest lease that etcd grants
T = TypeVar("T")

_prefixes = itertools.count()


class Rig(Protocol):
    """Where the data of one test lives."""

    kind: str
    place: str  # what another process needs to open the same

    async def open(self) -> Coordinator:
        """One more coordinator on the same data, as another instance has it."""

    async def forget(self) -> None:
        """Drop the history of changes up to now."""

    async def close(self) -> None: ...


class OneHostRig:
    kind = "one-host"

    def __init__(self, folder: Path) -> None:
        self.place = str(folder / "coordination.db")
        self._opened: list[Coordinator] = []

    async def open(self) -> Coordinator:
        self._opened.append(await OneHostCoordinator.open(Path(self.place)))
        return self._opened[-1]

    async def forget(self) -> None:
        coordinator = await self.open()
        for _ in range(2):
            await coordinator.transact(expected={}, puts={"~filler": b""})
            await coordinator.transact(expected={}, puts={}, deletes=["~filler"])

    async def close(self) -> None:
        for coordinator in self._opened:
            await coordinator.close()


class EtcdRig:
    kind = "etcd"

    def __init__(self, server: Etcd, **options: object) -> None:
        self.place = f"{server.endpoint}/test-{next(_prefixes)}"
        self._options = options
        self._opened: list[EtcdCoordinator] = []

    async def open(self) -> EtcdCoordinator:
        self._opened.append(await open_etcd(self.place, **self._options))
        return self._opened[-1]

    async def forget(self) -> None:
        coordinator = await self.open()
        revision = (await coordinator._snapshot("")).revision
        await coordinator._connection.ask(COMPACT, rpc.CompactionRequest(revision=revision, physical=True))

    async def close(self) -> None:
        for coordinator in self._opened:
            await coordinator.close()


async def open_etcd(place: str, **options: object) -> EtcdCoordinator:
    endpoint, _, prefix = place.partition("/")
    return await EtcdCoordinator.open(EtcdOptions(**({"endpoints": (endpoint,), "prefix": f"/{prefix}"} | options)))  # type: ignore[arg-type]


def etcd_in(folder: Path, *, tls: Path | None = None) -> Etcd:
    """One that is not started. Where it is not installed, the test says so and is left out."""
    if installed() is None:
        pytest.skip(f"etcd is not installed; {INSTALL}")
    return Etcd(folder, tls=tls)


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One server for all tests that do not harm it; each has keys of its own."""
    server = etcd_in(tmp_path_factory.mktemp("etcd") / "server")
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(params=["one-host", "etcd"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    rig: Rig = EtcdRig(request.getfixturevalue("shared_etcd")) if request.param == "etcd" else OneHostRig(tmp_path)
    yield rig
    await rig.close()


@pytest.fixture
async def coordinator(rig: Rig) -> Coordinator:
    return await rig.open()


@pytest.fixture
async def other(rig: Rig) -> Coordinator:
    return await rig.open()


async def put(coordinator: Coordinator, **values: bytes) -> int:
    revision = await coordinator.transact(expected={}, puts=values)
    assert revision is not None
    return revision


async def insist(coordinator: Coordinator, **values: bytes) -> None:
    """Put until it is answered: right after a restart a connection may turn out to be dead."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await put(coordinator, **values)
            except CoordinationError:
                await asyncio.sleep(0.05)
            else:
                return


async def soon(awaitable: Awaitable[T]) -> T:
    """What is waited for must happen; a test that waits for ever says where."""
    async with asyncio.timeout(PATIENCE_S):
        return await awaitable


class Watched:
    """A consumer: the state that a watch tells, and how it was told."""

    def __init__(self, watch: AsyncGenerator[Snapshot | Change, None]) -> None:
        self._watch = watch
        self.state: dict[str, Entry] = {}
        self.snapshots = 0
        self.changes: list[Change] = []

    async def next(self) -> Snapshot | Change:
        event = await soon(anext(self._watch))
        if isinstance(event, Snapshot):
            self.snapshots += 1
            self.state = {entry.key: entry for entry in event.entries}
            return event
        self.changes.append(event)
        if event.value is None:
            del self.state[event.key]
        else:
            self.state[event.key] = Entry(event.key, event.value, event.revision)
        return event

    async def until(self, holds: Callable[[dict[str, bytes]], bool]) -> None:
        """Go on until the state is as wanted."""
        while not holds(self.values()):
            await self.next()

    def values(self) -> dict[str, bytes]:
        return {key: entry.value for key, entry in self.state.items()}


@asynccontextmanager
async def watching(coordinator: Coordinator, prefix: str = "") -> AsyncIterator[Watched]:
    """One that has had its first snapshot."""
    watch = coordinator.watch(prefix)
    try:
        watched = Watched(watch)
        await watched.next()
        yield watched
    finally:
        await watch.aclose()


@asynccontextmanager
async def holder(rig: Rig, what: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process that holds the key ``what`` under a lease, or is the leader of the election ``what``."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.conformance.coordinator_holder", rig.kind, rig.place, what),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        while (line := await soon(process.stdout.readline())) != b"held\n":
            assert line, "it ended"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
