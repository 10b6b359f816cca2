"""What every coordinator promises. A new one adds an entry to `COORDINATORS`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from cluster.coordinator import CoordinationError, Coordinator
from cluster.one_host import OneHostCoordinator

Open = Callable[[], Awaitable[Coordinator]]


def one_host(folder: Path) -> Open:
    return lambda: OneHostCoordinator.open(folder / "coordination.db")


COORDINATORS: dict[str, Callable[[Path], Open]] = {"one-host": one_host}


@pytest.fixture(params=list(COORDINATORS))
async def open_another(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens one more coordinator on the same data, as another process of the host would."""
    opened: list[Coordinator] = []
    open_ = COORDINATORS[request.param](tmp_path)

    async def another() -> Coordinator:
        opened.append(await open_())
        return opened[-1]

    yield another
    for coordinator in opened:
        await coordinator.close()


@pytest.fixture
async def coordinator(open_another: Open) -> Coordinator:
    return await open_another()


async def put(coordinator: Coordinator, **values: bytes) -> int:
    revision = await coordinator.transact(expected={}, puts=values)
    assert revision is not None
    return revision


async def test_what_was_written_is_read_with_its_revision(coordinator: Coordinator) -> None:
    """An entry carries the revision of the transaction that wrote it; revisions grow."""
    first = await put(coordinator, a=b"1")
    second = await put(coordinator, b=b"\x00\xff")
    assert second > first
    assert await coordinator.get("a") == ("a", b"1", first)
    assert await coordinator.get("b") == ("b", b"\x00\xff", second)
    assert await coordinator.get("c") is None


async def test_a_list_is_by_prefix_and_in_order(coordinator: Coordinator) -> None:
    """Prefixes are plain text: no character in them has a meaning, and none is folded."""
    keys = ["q/a", "q/b%", "q/b_", "q/é", "q/a/b", "q", "r/a", "Q/a", "q/%"]
    await coordinator.transact(expected={}, puts=dict.fromkeys(keys, b"x"))
    assert [entry.key for entry in await coordinator.list("q/")] == sorted(key for key in keys if key.startswith("q/"))
    assert [entry.key for entry in await coordinator.list("q/b%")] == ["q/b%"]
    assert await coordinator.list("z") == []
    assert len(await coordinator.list("")) == len(keys)


async def test_a_transaction_writes_all_or_nothing(coordinator: Coordinator) -> None:
    """One expectation that does not hold refuses every write and every delete of the transaction."""
    revision = await put(coordinator, a=b"1", b=b"1")
    refused = await coordinator.transact(
        expected={"a": revision, "b": revision + 1}, puts={"a": b"2", "c": b"2"}, deletes=["b"]
    )
    assert refused is None
    assert {entry.key: entry.value for entry in await coordinator.list("")} == {"a": b"1", "b": b"1"}
    assert await coordinator.transact(expected={"a": revision, "b": revision}, puts={"a": b"2"}, deletes=["b"])
    assert {entry.key: entry.value for entry in await coordinator.list("")} == {"a": b"2"}


async def test_a_key_that_must_not_exist(coordinator: Coordinator) -> None:
    """Revision 0 means absence: of two creations the second is refused, until the key is deleted."""
    assert await coordinator.transact(expected={"a": 0}, puts={"a": b"1"})
    assert await coordinator.transact(expected={"a": 0}, puts={"a": b"2"}) is None
    assert await coordinator.transact(expected={}, puts={}, deletes=["a", "never was"])
    assert await coordinator.transact(expected={"a": 0}, puts={"a": b"3"})


async def test_of_two_who_expect_the_same_one_wins(open_another: Open) -> None:
    """Compare-and-set holds between coordinators on the same data, and no increment is lost."""
    one, other = await open_another(), await open_another()
    await put(one, n=b"0")

    async def increment(coordinator: Coordinator) -> None:
        for _ in range(10):
            while True:
                entry = await coordinator.get("n")
                assert entry is not None
                value = str(int(entry.value) + 1).encode()
                if await coordinator.transact(expected={"n": entry.revision}, puts={"n": value}):
                    break

    await asyncio.gather(*(increment(each) for each in (one, other, one, other)))
    entry = await one.get("n")
    assert entry is not None
    assert entry.value == b"40"


async def test_everything_is_there_after_a_restart(open_another: Open) -> None:
    """What was answered is durable, and revisions go on from where they were."""
    before = await open_another()
    revision = await put(before, a=b"1")
    await before.close()
    after = await open_another()
    assert await after.get("a") == ("a", b"1", revision)
    assert await put(after, b=b"1") > revision


@pytest.mark.parametrize("steps", range(8))
async def test_a_caller_that_goes_away_disturbs_nobody_else(coordinator: Coordinator, steps: int) -> None:
    """A transaction whose caller is cancelled at any step lands whole or not at all, and the next one works."""
    going = asyncio.ensure_future(coordinator.transact(expected={}, puts={"a": b"1", "b": b"1"}))
    for _ in range(steps):
        await asyncio.sleep(0.0002)
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    await put(coordinator, c=b"1")
    await put(coordinator, d=b"1")
    assert len(await coordinator.list("")) in {2, 4}


async def test_a_place_that_cannot_be_opened_is_an_error_of_coordination(tmp_path: Path) -> None:
    """It says what is wrong, and not that something is."""
    with pytest.raises(CoordinationError, match="cannot be opened"):
        await OneHostCoordinator.open(tmp_path)
