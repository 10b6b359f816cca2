"""Holders of leases on one host: who has died holds nothing, however it died, and who lives is never taken for dead."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from cluster.one_host import OneHostCoordinator
from cluster.one_host_holders import Holders

PATIENCE_S = 60
LONG_MS = 3_600_000  # no test waits for the end of such a lease
HOLD = f"""
import asyncio, pathlib, sys
from cluster.one_host import OneHostCoordinator

async def hold() -> None:
    coordinator = await OneHostCoordinator.open(pathlib.Path(sys.argv[1]))
    lease = await coordinator.grant({LONG_MS})
    await coordinator.transact(expected={{}}, puts={{sys.argv[2]: b"held"}}, lease=lease)
    print("held", flush=True)
    await asyncio.Event().wait()

asyncio.run(hold())
"""


@asynccontextmanager
async def holding(path: Path, key: str) -> AsyncIterator[Process]:
    """A process that holds a key under a long lease, and is gone afterwards."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLD, str(path), key, stdout=PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            assert await process.stdout.readline() == b"held\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_what_a_killed_process_held_is_free_at_once(tmp_path: Path) -> None:
    """Its keys are gone for the next look, whatever is left of its lease; those of the others stay."""
    path = tmp_path / "c.db"
    coordinator = await OneHostCoordinator.open(path)
    async with holding(path, "a") as killed, holding(path, "b"):
        assert [entry.key for entry in await coordinator.list("")] == ["a", "b"]
        killed.kill()
        await killed.wait()
        assert [entry.key for entry in await coordinator.list("")] == ["b"]
        assert len(list((tmp_path / "c.d").iterdir())) == 2, "its file is gone too"
    await coordinator.close()


async def test_the_first_after_the_death_of_all_finds_nothing_held(tmp_path: Path) -> None:
    """No process saw the others die, and still the next one need not wait; it leaves no files behind."""
    path = tmp_path / "c.db"
    async with holding(path, "a"), holding(path, "b"):
        pass
    assert len(list((tmp_path / "c.d").iterdir())) == 2
    coordinator = await OneHostCoordinator.open(path)
    assert await coordinator.list("") == []
    await coordinator.close()
    assert list((tmp_path / "c.d").iterdir()) == []


async def test_a_process_that_stands_still_is_not_dead(tmp_path: Path) -> None:
    """A stopped process holds what it held, for as long as its lease lasts."""
    path = tmp_path / "c.db"
    coordinator = await OneHostCoordinator.open(path)
    async with holding(path, "a") as stopped:
        stopped.send_signal(signal.SIGSTOP)
        assert await coordinator.get("a") is not None
        stopped.send_signal(signal.SIGCONT)
    await coordinator.close()


async def test_who_closes_in_order_holds_nothing(tmp_path: Path) -> None:
    """A lease that was not revoked ends with the coordinator that kept it."""
    first = await OneHostCoordinator.open(tmp_path / "c.db")
    second = await OneHostCoordinator.open(tmp_path / "c.db")
    await first.transact(expected={}, puts={"a": b"1"}, lease=await first.grant(LONG_MS))
    assert await second.get("a") is not None
    await first.close()
    assert await second.get("a") is None
    await second.close()


async def test_a_folder_that_was_tidied_up_is_made_again(tmp_path: Path) -> None:
    """What was held is lost with the file, but the next lease of the same process holds."""
    first = await OneHostCoordinator.open(tmp_path / "c.db")
    second = await OneHostCoordinator.open(tmp_path / "c.db")
    await first.transact(expected={}, puts={"a": b"1"}, lease=await first.grant(LONG_MS))
    shutil.rmtree(tmp_path / "c.d")
    assert await second.get("a") is None
    await first.transact(expected={}, puts={"a": b"2"}, lease=await first.grant(LONG_MS))
    assert await second.get("a") is not None
    await first.close()
    await second.close()


def test_whoever_comes_is_never_taken_for_dead(tmp_path: Path) -> None:
    """Many that open and clean up at the same time: each is alive for all others until it closes."""
    watcher = Holders(tmp_path / "c.d")

    def come_and_go(_: int) -> list[bool]:
        seen = []
        for _ in range(50):
            holders = Holders(tmp_path / "c.d")
            seen.append(watcher.is_gone(holders.token()))
            holders.close()
        return seen

    with ThreadPoolExecutor(8) as pool:
        assert not any(gone for seen in pool.map(come_and_go, range(8)) for gone in seen)
    watcher.close()
    assert list((tmp_path / "c.d").iterdir()) == []
