"""Durability as the kernel sees it: a commit is answered after its fsync, and survives kill -9."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from querator.waist import Batch
from storage import SqliteBackend

ROOT = Path(__file__).resolve().parents[2]

# Writes one line per acknowledged commit, with one write call each, so that a trace shows it between the others.
COMMITTER = """
import asyncio, os, sys
from pathlib import Path
import uvloop
from querator.waist import Batch
from storage import SqliteBackend

async def main(path, commits, synchronous):
    backend = await SqliteBackend.open(name="a", path=Path(path), synchronous=synchronous)
    await backend.create(1)
    partition = backend.partition(1)
    number = (await partition.open(1)).number
    os.write(1, b"ready\\n")
    for number in range(number + 1, number + 1 + commits):
        await partition.commit(Batch(number=number, summary=b"%d" % number, blocks={number: b"x" * 500}))
        os.write(1, b"done %d\\n" % number)
    await backend.close()

uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
"""


def committer(path: Path, commits: int, synchronous: str = "full") -> list[str]:
    return [sys.executable, "-c", COMMITTER, str(path), str(commits), synchronous]


def trace(tmp_path: Path, synchronous: str) -> list[str]:
    """The traced calls between the answers of a real process, in their order."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (Debian: apt-get install strace)")
    log = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-qq", "-s", "64", "-e", "trace=fsync,fdatasync,write", "-o", str(log)]
    result = subprocess.run(
        [*command, *committer(tmp_path / "a.db", 20, synchronous)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "ptrace" in result.stderr and "Operation not permitted" in result.stderr:
        pytest.skip("this machine does not allow a process to be traced (ptrace is refused)")
    assert result.returncode == 0, result.stderr
    return log.read_text(encoding="utf-8").splitlines()


def synced_before_each_answer(lines: list[str]) -> list[bool]:
    """For each answered commit, whether a sync of the log began and ended well since the answer before it."""
    answers: list[bool] = []
    synced = False
    waiting: set[str] = set()  # threads whose sync of the log was begun and not yet ended when another call was shown
    for line in lines:
        thread = line.split(maxsplit=1)[0]
        if re.search(r"f(data)?sync\(\d+<[^>]*a\.db-wal>", line):
            if "unfinished" in line:
                waiting.add(thread)
            else:
                synced = synced or line.rstrip().endswith("= 0")
        elif "sync resumed" in line and thread in waiting:
            waiting.discard(thread)
            synced = synced or line.rstrip().endswith("= 0")
        elif '"ready\\n"' in line:
            synced = False
        elif '"done ' in line:
            answers.append(synced)
            synced = False
    return answers


def test_every_commit_is_synced_before_it_is_answered(tmp_path: Path) -> None:
    """Between one answer and the next, the kernel was asked to sync the write-ahead log, and had done it."""
    assert synced_before_each_answer(trace(tmp_path, "full")) == [True] * 20


def test_the_trace_can_tell(tmp_path: Path) -> None:
    """With the sync configured away by name, the same check finds none: it does not pass by chance."""
    assert synced_before_each_answer(trace(tmp_path, "off")) == [False] * 20


def kill_after(path: Path, commits: int) -> int:
    """Kill a committing process at once after so many answers; the last number that it has answered."""
    with subprocess.Popen(committer(path, 1_000_000), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        lines = [process.stdout.readline() for _ in range(commits)]
        process.kill()
        lines += process.stdout.read().splitlines()
    return int(lines[-1].split()[1])


def test_what_was_answered_survives_kill(tmp_path: Path) -> None:
    """After kill -9 at any moment every answered commit is there, whole, and at most the one in flight besides."""
    path = tmp_path / "a.db"
    for commits in (1, 7, 50, 200):
        answered = kill_after(path, commits)
        numbers, blocks = asyncio.run(read(path))
        assert numbers >= answered
        assert blocks == list(range(1, numbers + 1))
        assert numbers <= answered + 1


async def read(path: Path) -> tuple[int, list[int]]:
    """The last commit's number, and the ids of all blocks."""
    backend = await SqliteBackend.open(name="a", path=path)
    partition = backend.partition(1)
    opened = await partition.open(1)
    assert opened.summary == b"%d" % opened.number
    blocks = await partition.scan_blocks(1, 2**62, 10_000_000)
    await partition.commit(
        Batch(number=opened.number + 1, summary=b"%d" % (opened.number + 1), blocks={opened.number + 1: b"x"})
    )
    await backend.close()
    return opened.number, [block.id for block in blocks]
