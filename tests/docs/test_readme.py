"""The README's first minute, typed as it stands there, against a real server on another port."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

from querator import Client
from tests.crash.server import Server, server_in
from tests.docs.pages import ROOT, Example, examples, page

PATIENCE_S = 60
ADDRESS = "127.0.0.1:2319"  # as the README has it
ID = re.compile(r"[0-7][0-9a-f]{22}")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
DURATION = re.compile(r"\b\d+(?:\.\d+)?(?:ms|s|m)\b")


class Reader:
    """A stranger who types what the README says, and uses the ids of the own answers in place of those shown."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._address = server.url.removeprefix("http://")
        self._folder = folder
        self._ids: dict[str, str] = {}  # shown → real
        bin_dir = Path(sys.executable).parent
        self._environment = {
            **os.environ,
            "QUERATOR_URL": server.url,
            "PATH": f"{bin_dir}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
        }

    async def follow(self, example: Example) -> None:
        assert example.answer, f"the README does not say what this answers:\n{example.code}"
        code = example.code.replace(ADDRESS, self._address)
        for shown, real in self._ids.items():
            code = code.replace(shown, real)
        command = ("sh", "-euc") if example.language == "sh" else (sys.executable, "-c")
        got = await self._run(*command, code, lines=example.answer.count("\n"))
        self._compare(example, got)

    async def _run(self, *command: str, lines: int) -> str:
        """What a program writes; one that goes on after its last line is interrupted, as a reader would."""
        process = await asyncio.create_subprocess_exec(
            *command, stdout=PIPE, stderr=PIPE, cwd=self._folder, env=self._environment
        )
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            if "worker.run()" in command[-1]:
                got = b"".join([await process.stdout.readline() for _ in range(lines)])
                process.send_signal(signal.SIGINT)
                rest, err = await process.communicate()
            else:
                got = b""
                rest, err = await process.communicate()
        assert process.returncode == 0, f"{command[-1]}\n{err.decode()}"
        assert err == b"", err.decode()
        return (got + rest).decode()

    def _compare(self, example: Example, got: str) -> None:
        if example.answer.startswith("{"):
            shown, real = json.loads(example.answer), json.loads(got)
            assert self._masked(real) == self._masked(shown), f"{example.code}\nanswers\n{got}"
            self._ids |= dict(zip(ID.findall(example.answer), ID.findall(got), strict=True))
        else:
            assert DURATION.sub("TIME", got) == DURATION.sub("TIME", example.answer), f"{example.code}\nwrites\n{got}"

    def _masked(self, value: Any) -> Any:
        return json.loads(INSTANT.sub("INSTANT", ID.sub("ID", json.dumps(value))))


def typed() -> list[Example]:
    """What a reader types, in order; `make` is looked at below."""
    found = examples(page("README.md"), "sh", "python")
    return [example for example in found if not example.code.startswith("make ")]


async def test_the_first_minute(tmp_path: Path) -> None:
    """Every command and program of the README works in its order, and answers what the README shows."""
    followed = typed()
    assert [example.language for example in followed] == ["sh"] * 4 + ["python"] * 2 + ["sh"]
    async with server_in(tmp_path) as server:
        await server.start()
        reader = Reader(server, tmp_path)
        for example in followed:
            await reader.follow(example)
        async with Client(server.url) as client:
            (left,) = (await client.stats("mail")).logical_queues[0].partitions
        assert left.total == 0, "whatever was produced in the README is completed in the README"
        assert await server.stop() == 0


def test_make_run_is_what_the_readme_says() -> None:
    """`make run` starts a server on the address and the folder of the README."""
    dry = subprocess.run(["make", "-n", "run"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"querator serve --listen {ADDRESS} --data-dir ./data" in dry
