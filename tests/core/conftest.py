"""Rigs for the scenarios of the core: each test runs on every backend that stands on one machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from querator.waist import Backend
from storage import FaultyBackend, MemoryBackend, SqliteBackend
from storage.faulty import ScriptedFaults
from tests.core.rig import Rig


@pytest.fixture(params=["memory", "sqlite"])
async def inner(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """The backend itself, without faults."""
    backend: Backend
    if request.param == "memory":
        backend = MemoryBackend("memory")
    else:
        backend = await SqliteBackend.open(name="sqlite", path=tmp_path / "partitions.db", synchronous="off")
    yield backend
    await backend.close()


@pytest.fixture
async def rig(inner: Backend) -> AsyncIterator[Rig]:
    """Not yet open: the test says with which settings."""
    faults = ScriptedFaults()
    async with AsyncExitStack() as stack:
        rig = Rig(FaultyBackend(inner, faults), faults)
        stack.push_async_callback(_end, rig)
        yield rig


async def _end(rig: Rig) -> None:
    if hasattr(rig, "logical_queue"):
        await rig.kill()
