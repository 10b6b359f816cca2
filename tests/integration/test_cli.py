"""The command line as a process of its own, against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from querator import Client
from tests.crash.server import Server, server_in

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60


class Ended(NamedTuple):
    code: int
    out: bytes
    err: bytes


class Shell:
    """Runs `querator`, or a shell that knows it, with QUERATOR_URL set."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        bin_dir = Path(sys.executable).parent
        self.environment = {**os.environ, "QUERATOR_URL": url, "PATH": f"{bin_dir}:{os.environ['PATH']}"}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=self.folder, env=self.environment
        )

    async def querator(self, *arguments: str, stdin: bytes = b"") -> Ended:
        return await self._finish(await self.start("querator", *arguments), stdin)

    async def sh(self, script: str) -> Ended:
        return await self._finish(await self.start("sh", "-euc", script), b"")

    async def _finish(self, process: asyncio.subprocess.Process, stdin: bytes) -> Ended:
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        assert b"Traceback" not in err, err.decode()
        return Ended(process.returncode, out, err)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with server_in(tmp_path) as server:
        await server.start()
        yield server


@pytest.fixture
def shell(server: Server, tmp_path: Path) -> Shell:
    return Shell(server.url, tmp_path)


async def test_the_guides_round_works(shell: Shell) -> None:
    """The commands of the guide's first round, typed as they stand there, do what it says."""
    guide = (ROOT / "docs/guides/cli.md").read_text()
    found = re.search(r"## A round\n\n```sh\n(.*?)```", guide, re.DOTALL)
    assert found is not None
    done = await shell.sh(found[1])
    assert done.code == 0, done.err.decode()
    assert done.out.splitlines()[-2:] == [b"hello", b"world"]


async def test_a_file_goes_in_and_comes_out(shell: Shell, tmp_path: Path) -> None:
    """Lines, also such as are no text, come out of a queue as they went in, in order."""
    lines = [b"%d" % number for number in range(2500)] + [b"\xff\xfe", b"", "grüße".encode()]
    (tmp_path / "items.txt").write_bytes(b"\n".join(lines) + b"\n")
    assert (await shell.querator("create", "mail")).code == 0
    produced = await shell.querator("produce", "mail", "--file", "items.txt", "--json")
    assert json.loads(produced.out) == {"queue_name": "mail", "produced": len(lines)}
    taken = await shell.querator("reserve", "mail", "--count", "5000", "--complete")
    assert taken.out == b"\n".join(lines) + b"\n"
    info = json.loads((await shell.querator("info", "mail", "--json")).out)
    assert "ready" not in info["partitions"][0]


async def test_pipes_of_the_guide(shell: Shell) -> None:
    """Reserved lines can be piped into complete, and listed items into import."""
    script = """
        querator create mail
        seq 20 | querator produce mail --file -
        querator items list mail --limit 0 --json > backup.jsonl
        querator reserve mail --count 20 --json | querator complete mail -
        querator items import mail backup.jsonl
        querator reserve mail --count 100 --complete
    """
    done = await shell.sh(script)
    assert done.code == 0, done.err.decode()
    assert done.out.splitlines()[-20:] == [b"%d" % number for number in range(1, 21)]


async def test_failures_are_one_line(shell: Shell) -> None:
    """What the server refuses is one line on stderr and exit code 1; wrong usage is 2."""
    missing = await shell.querator("stats", "nothing")
    assert (missing.code, missing.out) == (1, b"")
    assert missing.err == b"error: queue does not exist; no queue is named 'nothing'\n"
    assert (await shell.querator("create", "mail")).code == 0
    assert (await shell.querator("create", "mail")).code == 1
    stale = await shell.querator("complete", "mail", "0" * 23)
    assert stale.code == 1
    assert stale.err.startswith(b"error: item is not leased; ")
    assert (await shell.querator("create")).code == 2


async def test_following_ends_with_an_interrupt(shell: Shell, server: Server) -> None:
    """`reserve --follow` writes items as they come, and Ctrl-C ends it with 130 and no traceback."""
    async with Client(server.url, timeout="60s") as client:
        await client.create_queue("mail")
        process = await shell.start("querator", "reserve", "mail", "--follow", "--complete")
        assert process.stdout is not None
        for text in ("one", "two"):
            await client.produce("mail", text)
            async with asyncio.timeout(PATIENCE_S):
                assert await process.stdout.readline() == text.encode() + b"\n"
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PATIENCE_S):
        _, err = await process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in err


async def test_a_reader_that_leaves_is_no_crash(shell: Shell) -> None:
    """When the program at the other end of the pipe has read enough, the command ends without a traceback."""
    done = await shell.sh("querator create mail; seq 5000 | querator produce mail --file - > /dev/null")
    assert done.code == 0, done.err.decode()
    done = await shell.sh("querator items list mail --limit 0 --json | head -n 1")
    assert json.loads(done.out)["payload"]
    assert done.err == b""


async def test_watching_writes_a_line_each_time(shell: Shell, server: Server) -> None:
    """`stats --watch --json` is a stream of documents until it is interrupted."""
    async with Client(server.url, timeout="60s") as client:
        await client.create_queue("mail")
    process = await shell.start("querator", "stats", "mail", "--watch", "--interval", "50ms", "--json")
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(3):
            assert json.loads(await process.stdout.readline())["queue_name"] == "mail"
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PATIENCE_S):
        await process.communicate()
    assert process.returncode == 130


async def test_shells_complete_names_of_queues(shell: Shell) -> None:
    """Completion offers the queues that the server has, and nothing but silence where there is none."""
    assert (await shell.querator("create", "mail")).code == 0
    asked = {"_QUERATOR_COMPLETE": "bash_complete", "COMP_WORDS": "querator stats ma", "COMP_CWORD": "2"}
    shell.environment |= asked
    assert (await shell.querator()).out == b"plain,mail\n"
    shell.environment["QUERATOR_URL"] = "http://127.0.0.1:1"
    nothing = await shell.querator()
    assert (nothing.code, nothing.out.strip(), nothing.err) == (0, b"", b"")


async def test_serve_ends_well_on_an_interrupt(server: Server, shell: Shell) -> None:
    """Ctrl-C stops a server with exit code 0; starting it on a used port fails with one line."""
    taken = await shell.querator("serve", "--listen", server.url.removeprefix("http://"), "--data-dir", "other")
    assert taken.code == 1
    server.process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PATIENCE_S):
        assert await server.process.wait() == 0
