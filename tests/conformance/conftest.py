"""The backends that the storage suite is run against. A new driver adds one entry to `PLACES`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import pytest

from bench.postgres_server import Postgres
from querator.waist import Backend, Partition
from storage import FaultyBackend, MemoryBackend, PostgresBackend, SqliteBackend
from storage.postgres_options import PostgresOptions
from tests.schemas import new_schema


class Place(Protocol):
    """Where the data of one test lives; `open` opens another backend on the same data, if ``lasting``."""

    lasting: bool

    async def open(self) -> Backend: ...


class MemoryPlace:
    lasting = False

    def __init__(self, request: pytest.FixtureRequest) -> None:
        pass

    async def open(self) -> Backend:
        return MemoryBackend("memory")


class SqlitePlace:
    lasting = True

    def __init__(self, request: pytest.FixtureRequest) -> None:
        folder: Path = request.getfixturevalue("tmp_path")
        self._path = folder / "partitions.db"

    async def open(self) -> Backend:
        return await SqliteBackend.open(name="sqlite", path=self._path)


class PostgresPlace:
    lasting = True

    def __init__(self, request: pytest.FixtureRequest) -> None:
        server: Postgres = request.getfixturevalue("postgres")
        self._options = PostgresOptions(
            dsn=server.address, schema=new_schema(), connect_timeout="2m", command_timeout="2m"
        )

    async def open(self) -> Backend:
        return PostgresBackend(name="postgres", options=self._options)


PLACES: dict[str, Callable[[pytest.FixtureRequest], Place]] = {
    "memory": MemoryPlace,
    "sqlite": SqlitePlace,
    "postgres": PostgresPlace,
}


class Storage:
    """Opens backends for a test, and closes them after it."""

    def __init__(self, place: Place, *, wrapped: bool) -> None:
        self._place = place
        self._wrapped = wrapped
        self._opened: list[Backend] = []

    @property
    def lasting(self) -> bool:
        return self._place.lasting

    async def open(self) -> Backend:
        backend = await self._place.open()
        if self._wrapped:
            backend = FaultyBackend(backend)
        self._opened.append(backend)
        return backend

    async def close(self) -> None:
        for backend in reversed(self._opened):
            await backend.close()


@pytest.fixture(
    params=[(name, wrapped) for name in PLACES for wrapped in (False, True)],
    ids=lambda p: p[0] + ("-faulty" if p[1] else ""),
)
async def storage(request: pytest.FixtureRequest) -> AsyncIterator[Storage]:
    name, wrapped = request.param
    storage = Storage(PLACES[name](request), wrapped=wrapped)
    yield storage
    await storage.close()


@pytest.fixture
async def lasting(storage: Storage) -> Storage:
    if not storage.lasting:
        pytest.skip("this backend keeps nothing beyond itself")
    return storage


@pytest.fixture
async def backend(storage: Storage) -> Backend:
    return await storage.open()


@pytest.fixture
async def partition(backend: Backend) -> Partition:
    """Partition 1, opened with epoch 1."""
    await backend.create(1)
    partition = backend.partition(1)
    await partition.open(1)
    return partition
