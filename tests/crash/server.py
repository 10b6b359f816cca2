"""The real server as a process that may be killed, stopped and started again on the same data."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

Backend = dict[str, Any]  # an entry of the configuration's `storage`

PATIENCE_S = 60  # for a start or a stop, on a machine that others use too
_PAUSE_S = 0.005  # between two questions whether the server is there
_HEALTH_TIMEOUT = aiohttp.ClientTimeout(total=5)
_ROOT = Path(__file__).parents[2]


class Server:
    """`start` or `launch`, then `kill` or `stop`, as often as wanted. Who waits for `up` finds it at `url`.

    ``storage`` are its backends, as in the configuration file; without them it has the embedded one.
    """

    def __init__(
        self, folder: Path, session: aiohttp.ClientSession, storage: Sequence[Backend], program: Sequence[str]
    ) -> None:
        self.data_dir = folder / "data"
        self.config = folder / "querator.yaml"
        self.log = folder / "server.log"
        self.up = asyncio.Event()
        self.url = ""
        self._session = session
        self._program = program
        self._health = "never asked"
        self._process: asyncio.subprocess.Process | None = None
        self.config.write_text(yaml.safe_dump({"storage": list(storage)} if storage else {}))

    async def launch(self) -> None:
        """Start the process, and do not wait for it."""
        assert self._process is None, "one at a time"
        address = f"127.0.0.1:{_free_port()}"
        self.url = f"http://{address}"
        options = ("--config", str(self.config), "--listen", address, "--data-dir", str(self.data_dir))
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*self._program, "serve", *options), stdout=log, stderr=log, cwd=_ROOT
            )

    async def start(self) -> None:
        await self.launch()
        await self.until_health("pass")
        self.up.set()

    async def until_health(self, status: str, **backends: str) -> dict[str, Any]:
        """Wait until the running server says so of itself and of its backends; returns all that it says then."""
        wanted = {f"backend:{name}": status for name, status in backends.items()}
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (report := await self._ask_health()).get("status") != status or wanted.items() - _told(report):
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            words = f"{self._health}\n{self.last_words()}"
            raise AssertionError(f"health is not '{status}' within {PATIENCE_S} s: {words}") from None
        return report

    async def _ask_health(self) -> dict[str, Any]:
        process = self.process
        assert process.returncode is None, f"the server ended with {process.returncode}:\n{self.last_words()}"
        try:
            async with self._session.get(f"{self.url}/health", timeout=_HEALTH_TIMEOUT) as answer:
                self._health = await answer.text()
                report: dict[str, Any] = json.loads(self._health)
                return report
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            self._health = repr(error)
            return {}

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "the server was not started"
        return self._process

    async def kill(self) -> None:
        """As a power cut would end it, as far as a process can tell."""
        self.up.clear()
        process, self._process = self.process, None
        if process.returncode is None:
            process.kill()
        await process.wait()

    async def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        self.up.clear()
        process, self._process = self.process, None
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await process.wait()
        except TimeoutError:
            process.kill()
            raise AssertionError(f"the server did not stop within {PATIENCE_S} s:\n{self.last_words()}") from None

    def forget_since_checkpoint(self) -> None:
        """Take back what the killed server has committed since its last start, as a disk that lies about fsync would."""
        logs = list(self.data_dir.glob("local-*.db-wal"))
        assert any(log.stat().st_size for log in logs), "nothing was committed since the last start"
        for log in logs:
            log.write_bytes(b"")

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    async def close(self) -> None:
        if self._process is not None:
            await self.kill()


@asynccontextmanager
async def server_in(
    folder: Path, storage: Sequence[Backend] = (), program: Sequence[str] = ()
) -> AsyncIterator[Server]:
    """A server that is not yet started, and is gone afterwards. ``program`` may be another than the installed one."""
    async with aiohttp.ClientSession() as session:
        server = Server(folder, session, storage, program or [_installed()])
        try:
            yield server
        finally:
            await server.close()


def _told(report: dict[str, Any]) -> set[tuple[str, str]]:
    """What is said of each backend."""
    return {(name, check[0]["status"]) for name, check in report["checks"].items()}


def sqlite(name: str) -> Backend:
    return {"name": name, "driver": "sqlite", "options": {"path": f"{name}.db"}}


def _installed() -> str:
    program = shutil.which("querator", path=str(Path(sys.executable).parent))
    assert program is not None, f"there is no querator command beside {sys.executable}; install the project first"
    return program


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
