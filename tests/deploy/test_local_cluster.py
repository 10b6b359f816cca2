"""`make cluster`: what it starts finds each other, and what it started is gone after Ctrl-C."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path

import aiohttp
import pytest

from bench import etcd_server, postgres_server
from querator import Client
from tests.deploy.program import PATIENCE_S, environment

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-m", "bench.local_cluster")


def commands_with(text: str) -> list[str]:
    """The processes that name something."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_text(errors="replace").replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text in command:
            found.append(command)
    return found


async def first_words(stream: asyncio.StreamReader) -> str:
    """What it says until it has started."""
    said = ""
    async with asyncio.timeout(3 * PATIENCE_S):
        while "Ctrl-C" not in said:
            line = await stream.readline()
            assert line, said
            said += line.decode()
    return said


@pytest.mark.skipif(etcd_server.installed() is None, reason="etcd is not installed")
@pytest.mark.skipif(postgres_server.installed() is None, reason="PostgreSQL is not installed")
async def test_three_instances_see_each_other_and_leave_nothing_behind() -> None:
    """Each knows all three, a queue that is filled at one is drained at another, and Ctrl-C ends every process."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, cwd=ROOT, env=environment({}), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    assert process.stdout is not None
    try:
        said = await first_words(process.stdout)
        urls = re.findall(r"^instance \d   (\S+)", said, re.MULTILINE)
        (folder,) = re.findall(r"^Everything is in (\S+)\. ", said, re.MULTILINE)
        async with aiohttp.ClientSession() as session:
            for url in urls:
                async with session.post(f"{url}/v1/cluster.info", json={}) as answer:
                    assert len((await answer.json())["instances"]) == len(urls) == 3
        async with Client(urls[0]) as first, Client(urls[2]) as last:
            await first.create_queue("mail", requested_partitions=6)
            await first.produce("mail", "hello")
            (item,) = await last.reserve("mail", 1)
            assert item.text == "hello"
            await last.complete([item])
        assert len(commands_with(folder)) >= 5
    finally:
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_S):
            rest, _ = await process.communicate()
    assert (process.returncode, rest.decode()) == (0, "stopped\n")
    assert commands_with(folder) == []
    assert not Path(folder).exists()


def test_what_is_missing_is_named() -> None:
    """Where etcd is not installed, one line says so, and how to get it."""
    command = [*PROGRAM]
    env = environment({"PATH": "/nowhere"})
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"cannot start: etcd is not installed; {etcd_server.INSTALL}\n"


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """Nothing is started over the data of something else."""
    (tmp_path / "file").touch()
    command = [*PROGRAM, "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert "--folder must be empty" in done.stderr
