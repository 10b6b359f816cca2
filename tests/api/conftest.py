"""A real server on memory, reached through each of its doors."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest
import uvloop
from google.protobuf.message import Message

from api.codec import MESSAGES
from api.server import Server
from cluster.one_host import OneHostCoordinator
from cluster.participant import Participant
from cluster.router import Router
from querator import wire
from querator.clock import SystemClock
from querator.limits import Limits
from querator.observer import Observer
from querator.telemetry import Tracing
from querator.waist import Backend
from storage.drivers import open_backend
from tests.cluster.members import member_with


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """The loop that the server runs on; what depends on how a transport behaves is held on asyncio's own too."""
    factories: dict[str, Any] = {"uvloop": uvloop.new_event_loop}
    if item.path.name == "test_doors.py":
        factories["asyncio"] = asyncio.new_event_loop
    return factories


EXTENDED = {"Querator-Extended": "1"}
PROTOBUF = "application/protobuf"


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Api:
    """Calls a server by HTTP."""

    def __init__(self, server: Server, port: int, session: aiohttp.ClientSession, router: Router) -> None:
        self.server = server
        self.port = port
        self.router = router
        self._session = session
        self.url = f"http://127.0.0.1:{port}"

    async def send(
        self, path: str, body: Any, headers: Mapping[str, str] | None = None, method: str = "POST"
    ) -> Answered:
        async with self._session.request(method, self.url + path, data=body, headers=headers) as response:
            return Answered(response.status, response.headers, await response.read())

    async def call(self, name: str, headers: Mapping[str, str] | None = None, /, **fields: Any) -> Answered:
        return await self.send(
            f"/v1/{name}", msgspec.json.encode(fields), {"Content-Type": "application/json", **(headers or {})}
        )

    async def ok(self, name: str, headers: Mapping[str, str] | None = None, /, **fields: Any) -> Any:
        answered = await self.call(name, headers, **fields)
        assert answered.status == 200, answered.body
        return answered.json

    async def protobuf(self, name: str, headers: Mapping[str, str] | None = None, /, **fields: Any) -> Message:
        """Asks and is answered in protobuf. Fields go by their original names."""
        shape = wire.SHAPES[name]
        body = MESSAGES[shape.request.__name__](**fields).SerializeToString()
        answered = await self.send(
            f"/v1/{name}", body, {"Content-Type": PROTOBUF, "Accept": PROTOBUF, **(headers or {})}
        )
        assert answered.status == 200, answered.body
        assert answered.headers["Content-Type"] == PROTOBUF
        message = MESSAGES[shape.answer.__name__]()
        message.ParseFromString(answered.body)
        return message


@asynccontextmanager
async def running_api(
    folder: Path,
    *,
    fast_door: bool = True,
    limits: Limits | None = None,
    grpc: bool = False,
    tracing: Tracing | None = None,
) -> AsyncIterator[Api]:
    limits = limits if limits is not None else Limits()
    backend = await open_backend(name="memory-0", driver="memory", affinity=1.0, options={}, data_dir=folder)
    coordinator = await OneHostCoordinator.open(folder / "cluster.db")
    backends: dict[str, Backend] = {"memory-0": backend}
    participant = Participant(
        coordinator=coordinator,
        me=member_with(backends),
        backends=backends,
        clock=SystemClock(),
        rng=random.Random(7),
        limits=limits,
        observer=Observer(tracing),
    )
    await participant.start()
    router = participant.router
    server = Server(router=router, limits=limits, fast_door=fast_door, tracing=tracing)
    try:
        [(_, port)] = await server.start([("127.0.0.1", 0)], ("127.0.0.1", 0) if grpc else None)
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=60), skip_auto_headers=["Accept", "Content-Type"]
        ) as session:
            yield Api(server, port, session, router)
    finally:
        await server.stop()
        await participant.close()
        await coordinator.close()
        await backend.close()


@pytest.fixture(params=["fast", "full"])
def fast_door(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "fast")


@pytest.fixture
async def api(tmp_path: Path, fast_door: bool) -> AsyncIterator[Api]:
    async with running_api(tmp_path, fast_door=fast_door) as running:
        await running.ok("queues.create", queue_name="mail")
        yield running
