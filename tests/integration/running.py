"""A whole instance in this process, on a configuration file that a test may change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from querator.daemon import Instance, read_config

PATIENCE_S = 60
_PAUSE_S = 0.02
_HEADERS = {"Content-Type": "application/json", "Querator-Extended": "1"}


class Running:
    """Calls the instance by HTTP. ``path`` is its file."""

    def __init__(self, path: Path, url: str, session: aiohttp.ClientSession) -> None:
        self.path = path
        self.url = url
        self._session = session

    def write(self, **options: Any) -> None:
        """Make these the file's options, beside the address and the data folder."""
        write_config(self.path, **options)

    async def call(self, name: str, **fields: Any) -> tuple[int, Any]:
        body = msgspec.json.encode(fields)
        async with self._session.post(f"{self.url}/v1/{name}", data=body, headers=_HEADERS) as answer:
            return answer.status, msgspec.json.decode(await answer.read())

    async def ok(self, name: str, **fields: Any) -> Any:
        status, document = await self.call(name, **fields)
        assert status == 200, document
        return document

    async def refused(self, name: str, **fields: Any) -> str:
        status, document = await self.call(name, **fields)
        assert status != 200, document
        return str(document["message"])

    async def health(self) -> dict[str, str]:
        """The status of each backend by its name."""
        async with self._session.get(f"{self.url}/health") as answer:
            checks = msgspec.json.decode(await answer.read())["checks"]
        prefix = "backend:"
        return {name.removeprefix(prefix): of[0]["status"] for name, of in checks.items() if name.startswith(prefix)}

    async def places(self, queue_name: str) -> dict[str, list[str]]:
        """The states of a queue's partitions by backend."""
        found: dict[str, list[str]] = {}
        for partition in (await self.ok("queues.info", queue_name=queue_name))["partitions"]:
            found.setdefault(partition["backend"], []).append(partition["state"])
        return found

    async def backends(self) -> dict[str, tuple[float, int]]:
        """Affinity and number of partitions by backend."""
        listed = (await self.ok("storage.list"))["backends"]
        return {each["name"]: (each.get("affinity", 0.0), each.get("partitions", 0)) for each in listed}


def write_config(path: Path, **options: Any) -> None:
    base = {"listen": "127.0.0.1:0", "data_dir": str(path.parent / "data")}
    path.write_text(yaml.safe_dump({**base, **options}, sort_keys=False))


def memory(name: str, affinity: float = 1.0) -> dict[str, Any]:
    return {"name": name, "driver": "memory", "affinity": affinity}


def sqlite(name: str, affinity: float = 1.0) -> dict[str, Any]:
    return {"name": name, "driver": "sqlite", "affinity": affinity, "options": {"path": f"{name}.db"}}


@asynccontextmanager
async def running(path: Path, **options: Any) -> AsyncIterator[Running]:
    """An instance that has read this configuration, and reads it again when it is told to."""
    write_config(path, **options)
    instance = Instance(read_config(path, {}).checked(), lambda: read_config(path, {}))
    [(host, port)] = await instance.start()
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S)) as session:
            yield Running(path, f"http://{host}:{port}", session)
    finally:
        await instance.stop()


async def until(holds: Callable[[], Any]) -> None:
    """Ask again until it holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():
            await asyncio.sleep(_PAUSE_S)
