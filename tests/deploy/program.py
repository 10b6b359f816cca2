"""`querator serve` as a process, started as an operator starts it, on a port that the system chooses."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.docs.pages import page, quoted, table

PATIENCE_S = 60  # for a start or a stop, on a machine that others use too
ANY_PORT = "127.0.0.1:0"


def program() -> Path:
    """The command that is installed beside this Python."""
    found = shutil.which("querator", path=str(Path(sys.executable).parent))
    assert found is not None, f"there is no querator command beside {sys.executable}; install the project first"
    return Path(found)


def documented() -> set[str]:
    """The variables that a server reads; tests/docs holds that the page names all of them and no other."""
    cells = (variable for _, variable, _ in table(page("docs/operations.md"), "## Starting"))
    return {name for cell in cells for name in quoted(cell)}


def environment(of: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what would configure a server, and with this."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("QUERATOR_", "PG", "PYTHON"))}
    return ours | dict(of)


class Running:
    """A server that has said where it listens."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.url = url
        self._process = process

    async def end(self, number: signal.Signals) -> int:
        """Send the signal, and return the exit code."""
        self._process.send_signal(number)
        async with asyncio.timeout(PATIENCE_S):
            await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode


@asynccontextmanager
async def serving(*command: str | Path, folder: Path, env: Mapping[str, str]) -> AsyncIterator[Running]:
    """Run the command, which logs JSON, until it listens. What is left of it afterwards is killed."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=folder, env=environment(env), stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            url = await _listening(process)
        yield Running(process, url)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def _listening(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = []
    async for line in process.stderr:
        said.append(line.decode())
        event = json.loads(line) if line.startswith(b"{") else {}
        if event.get("event") == "listening":
            return str(event["url"])
    raise AssertionError(f"the server ended with {await process.wait()}:\n{''.join(said)}")
