"""One instance of a cluster: a `querator serve` that may be killed, paused, stopped and started again."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from bench.ports import lasting_port

PATIENCE_S = 90  # for anything that must come to pass, on a machine that others use too
PAUSE_S = 0.01
_TIMEOUT = aiohttp.ClientTimeout(total=20)
_ROOT = Path(__file__).parents[2]
_HEADERS = {"Content-Type": "application/json", "Querator-Extended": "1"}


class Instance:
    """`start`, then `kill` or `stop`, as often as wanted; its address and its data stay the same."""

    def __init__(self, name: str, folder: Path, session: aiohttp.ClientSession) -> None:
        folder.mkdir()
        self.name = name
        self.address = f"127.0.0.1:{lasting_port()}"
        self.url = f"http://{self.address}"
        self.peer_port = lasting_port()
        self.up = asyncio.Event()
        self._log = folder / "server.log"
        self._config = folder / "querator.yaml"
        self._data_dir = folder / "data"
        self._session = session
        self._process: asyncio.subprocess.Process | None = None

    def configure(self, **options: Any) -> None:
        fixed = {"listen": self.address, "data_dir": str(self._data_dir), "log": {"format": "json"}}
        self._config.write_text(yaml.safe_dump({**fixed, **options}))

    async def launch(self) -> None:
        """Start the process, and do not wait for it."""
        assert self._process is None, "one at a time"
        program = shutil.which("querator", path=str(Path(sys.executable).parent))
        assert program is not None, f"there is no querator command beside {sys.executable}; install the project first"
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                program, "serve", "--config", str(self._config), stdout=log, stderr=log, cwd=_ROOT
            )

    async def start(self) -> None:
        await self.launch()
        await self.until_healthy()

    async def until_healthy(self) -> None:
        health = "never asked"
        try:
            async with asyncio.timeout(PATIENCE_S):
                while json.loads(health := await self._ask_health()).get("status") != "pass":
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            raise AssertionError(f"'{self.name}' is not healthy: {health}\n{self.last_words()}") from None
        self.up.set()

    async def _ask_health(self) -> str:
        assert self.process.returncode is None, f"'{self.name}' ended:\n{self.last_words()}"
        try:
            async with self._session.get(f"{self.url}/health", timeout=_TIMEOUT) as answer:
                return await answer.text()
        except (aiohttp.ClientConnectionError, TimeoutError):
            return "{}"

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "it was not started"
        return self._process

    @property
    def pid(self) -> int:
        """0 if it does not run."""
        return self._process.pid if self._process is not None else 0

    async def kill(self) -> None:
        """As a power cut would end it, as far as a process can tell."""
        self.up.clear()
        process, self._process = self.process, None
        if process.returncode is None:
            process.kill()
        await process.wait()

    def pause(self) -> None:
        """It stays connected and is silent."""
        self.up.clear()
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.up.set()

    async def stop(self) -> int:
        """Ask it to stop, and return its exit code. It is there for its callers until it has gone."""
        process = self.process
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(PATIENCE_S):
                code = await process.wait()
        except TimeoutError:
            raise AssertionError(f"'{self.name}' did not stop:\n{self.last_words()}") from None
        self.up.clear()
        self._process = None
        return code

    async def close(self) -> None:
        if self._process is not None:
            await self.kill()

    async def call(self, name: str, fields: Mapping[str, object]) -> dict[str, Any]:
        """A call that must be answered 200; raises `aiohttp.ClientError` or `TimeoutError` if it is not answered."""
        url = f"{self.url}/v1/{name}"
        async with self._session.post(url, data=json.dumps(fields), headers=_HEADERS, timeout=_TIMEOUT) as answer:
            document: dict[str, Any] = json.loads(await answer.read())
            assert answer.status == 200, f"{name} was answered {answer.status} {document}"
            return document

    async def metric(self, name: str) -> float:
        """The sum over its labels."""
        async with self._session.get(f"{self.url}/metrics", timeout=_TIMEOUT) as answer:
            lines = (await answer.text()).splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def said(self, event: str) -> list[dict[str, Any]]:
        """The lines of its log with this event."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [each for each in found if each.get("event") == event]

    def last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])
