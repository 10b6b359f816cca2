"""PostgreSQL that is stopped, killed, cut off or not there: nothing is lost, nothing is written twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import asyncpg
import pytest

from bench.postgres_server import INSTALL, Postgres, installed, private_postgres
from querator.waist import MAX_BLOCK_ID, Batch, Opened, OutcomeUnknown, Partition, StorageError
from storage import PostgresBackend
from storage.postgres_options import PostgresOptions
from tests.conformance.proxy import Proxy
from tests.schemas import new_schema

_Result = TypeVar("_Result")
PATIENCE_S = 60


@pytest.fixture(scope="module")
def breakable() -> Iterator[Postgres]:
    """A durable server that the tests of this module may stop and break; each leaves it running."""
    if installed() is None:
        pytest.skip(f"PostgreSQL is not installed; {INSTALL}")
    with private_postgres() as server:
        yield server


def backend_on(
    port: int, schema: str = "", *, connect_timeout: str = "30s", command_timeout: str = "30s"
) -> PostgresBackend:
    options = PostgresOptions(
        dsn=f"postgresql://bench@127.0.0.1:{port}/postgres",
        schema=schema or new_schema(),
        connect_timeout=connect_timeout,
        command_timeout=command_timeout,
    )
    return PostgresBackend(name="pg", options=options)


async def eventually(call: Callable[[], Awaitable[_Result]]) -> _Result:
    """The call's result, as soon as the database lets it have one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await call()
            except StorageError:
                await asyncio.sleep(0.01)
    raise AssertionError("unreachable")


async def block_ids(partition: Partition) -> list[int]:
    return [block.id for block in await partition.scan_blocks(1, MAX_BLOCK_ID, 100_000)]


async def write_on(partition: Partition, stop: asyncio.Event) -> int:
    """Commit a block at a time through whatever happens; by the rules of the waist. Returns how many."""
    number = (await eventually(lambda: partition.open(1))).number
    while not stop.is_set():
        try:
            await partition.commit(Batch(number=number + 1, summary=b"%d" % number, blocks={number + 1: bytes(20_000)}))
        except StorageError:
            stored = (await eventually(lambda: partition.open(1))).number
            assert stored in {number, number + 1}
            number = stored
        else:
            number += 1
    return number


@pytest.mark.parametrize("how", ["restart immediate", "kill one", "kill all", "restart"])
async def test_a_crash_under_load_loses_and_doubles_nothing(breakable: Postgres, how: str) -> None:
    """Of commits that go on through crashes of the server, each one lands exactly once, in order."""
    backend = backend_on(breakable.port)
    stop = asyncio.Event()
    partitions = [backend.partition(uid) for uid in range(3)]
    for uid in range(3):
        await backend.create(uid)
    writers = [asyncio.create_task(write_on(partition, stop)) for partition in partitions]
    for _ in range(2):
        before = [len(await eventually(lambda p=p: block_ids(p))) for p in partitions]  # type: ignore[misc]
        await asyncio.to_thread(crash, breakable, how)
        async with asyncio.timeout(PATIENCE_S):
            for partition, count in zip(partitions, before, strict=True):
                while len(await eventually(lambda p=partition: block_ids(p))) < count + 5:  # type: ignore[misc]
                    await asyncio.sleep(0.01)
    stop.set()
    counts = await asyncio.gather(*writers)
    for partition, count in zip(partitions, counts, strict=True):
        assert await block_ids(partition) == list(range(1, count + 1))
        assert (await partition.open(1)).number == count
    assert await eventually(backend.health) == (True, "")
    await backend.close()


def crash(server: Postgres, how: str) -> None:
    if how == "restart immediate":
        server.restart_immediate()
    elif how == "restart":
        server.stop()
        server.start()
    else:
        pids = server.backend_pids()
        server.kill_backend(pids[0] if how == "kill one" else None)
        server.wait_until_open()


async def test_a_lost_answer_is_found_by_the_number(postgres: Postgres) -> None:
    """A commit whose answer never came is unknown, and the next open tells that it landed."""
    schema = new_schema()
    async with Proxy(postgres.port) as proxy:
        backend, direct = backend_on(proxy.port, schema), backend_on(postgres.port, schema)
        await backend.create(1)
        partition = backend.partition(1)
        await partition.open(1)
        await partition.commit(Batch(number=1, summary=b"s"))
        proxy.answers.clear()
        commit = asyncio.create_task(partition.commit(Batch(number=2, summary=b"t", blocks={1: b"x"})))
        await asyncio.wait_for(proxy.held.wait(), PATIENCE_S)
        # The answer is on its way, so the commit has landed. It never arrives.
        proxy.cut()
        with pytest.raises(OutcomeUnknown):
            await commit
        proxy.new_gates()
        assert await eventually(lambda: partition.open(1)) == Opened(2, b"t")
        assert await direct.partition(1).scan_blocks(1, 10, 10) == [(1, b"x")]
        await partition.commit(Batch(number=3, summary=b"u", dropped_blocks=[1]))
        await backend.close()
        await direct.close()


async def test_a_commit_that_comes_late_is_refused(postgres: Postgres) -> None:
    """A commit that was stuck on its way when the owner opened again lands not after it, also with the same epoch."""
    schema = new_schema()
    await make_partitions(postgres, schema, [41])
    async with Proxy(postgres.port) as proxy:
        backend = backend_on(proxy.port, schema, command_timeout="3s")
        partition = backend.partition(41)
        await partition.open(1)
        await partition.commit(Batch(number=1, summary=b"one", blocks={1: b"x"}))
        proxy.asks.clear()
        stuck = proxy.asks
        with pytest.raises(OutcomeUnknown):
            await partition.commit(Batch(number=2, summary=b"late", blocks={2: b"late"}))
        proxy.new_gates()
        assert await eventually(lambda: partition.open(1)) == Opened(1, b"one")
        stuck.set()
        await logged(postgres, "partition 41 was opened again since")
        assert await block_ids(partition) == [1]
        await partition.commit(Batch(number=2, summary=b"two", blocks={3: b"y"}))
        assert await block_ids(partition) == [1, 3]
        assert await partition.open(1) == Opened(2, b"two")
        await backend.close()


async def make_partitions(server: Postgres, schema: str, uids: list[int]) -> None:
    backend = backend_on(server.port, schema)
    for uid in uids:
        await backend.create(uid)
    await backend.close()


async def logged(server: Postgres, text: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while text not in server.log():
            await asyncio.sleep(0.01)


async def test_one_timeout_ends_the_idle_connections_too(postgres: Postgres) -> None:
    """When a connection has gone silent, the next call does not try its luck on others of that time, but on a new one."""
    schema = new_schema()
    await make_partitions(postgres, schema, [1, 2, 3])
    async with Proxy(postgres.port) as proxy:
        backend = backend_on(proxy.port, schema, command_timeout="3s")
        partitions = [backend.partition(uid) for uid in (1, 2, 3)]
        await asyncio.gather(*(partition.open(1) for partition in partitions))
        assert len(backend._writers._idle) == 3
        proxy.asks.clear()
        with pytest.raises(OutcomeUnknown):
            await partitions[0].commit(Batch(number=1, summary=b""))
        proxy.new_gates()
        assert (await partitions[0].open(1)).number == 0
        await partitions[1].commit(Batch(number=1, summary=b""))
        await backend.close()


async def test_open_waits_for_a_commit_that_the_server_works_on(postgres: Postgres) -> None:
    """If a commit is held up within the server, an open by another connection answers only after it, with its number."""
    schema = new_schema()
    ours, theirs = backend_on(postgres.port, schema), backend_on(postgres.port, schema)
    await ours.create(1)
    partition = ours.partition(1)
    await partition.open(1)
    blocker = await asyncpg.connect(postgres.address)
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute(f"LOCK TABLE {schema}.block_1 IN ACCESS EXCLUSIVE MODE")
    commit = asyncio.create_task(partition.commit(Batch(number=1, summary=b"s", blocks={1: b"x"})))
    await waits_for_lock(postgres, "commit_1", 1)
    opened = asyncio.create_task(theirs.partition(1).open(1))
    await waits_for_lock(postgres, "nextval", 1)
    assert not opened.done()
    await transaction.rollback()
    await commit
    assert await opened == Opened(1, b"s")
    with pytest.raises(StorageError, match="opened again"):
        await partition.commit(Batch(number=2, summary=b""))
    await blocker.close()
    await ours.close()
    await theirs.close()


async def waits_for_lock(server: Postgres, word: str, count: int) -> None:
    # By a connection without a transaction, within which the view would not change.
    watcher = await asyncpg.connect(server.address)
    async with asyncio.timeout(PATIENCE_S):
        while count > await watcher.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND position($1 in query) > 0", word
        ):
            await asyncio.sleep(0.01)
    await watcher.close()


async def test_a_commit_waits_behind_no_read(postgres: Postgres) -> None:
    """While more reads than there are connections for are stuck, commits go on."""
    backend = backend_on(postgres.port, new_schema())
    await backend.create(1)
    await backend.create(2)
    partition = backend.partition(1)
    await partition.open(1)
    blocker = await asyncpg.connect(postgres.address)
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute(f"LOCK TABLE {backend._connector.options.schema}.record_2 IN ACCESS EXCLUSIVE MODE")
    reads = [asyncio.create_task(backend.partition(2).get([b"k"])) for _ in range(20)]
    await waits_for_lock(postgres, "record_2", 4)
    await partition.commit(Batch(number=1, summary=b"", blocks={1: b"x"}))
    assert not any(read.done() for read in reads)
    await transaction.rollback()
    assert await asyncio.gather(*reads) == [{}] * 20
    await blocker.close()
    await backend.close()


async def test_a_database_that_is_down_at_the_start_is_taken_up_when_it_comes(breakable: Postgres) -> None:
    """Without a database a backend can be made and says why it fails; it works by itself once there is one."""
    await asyncio.to_thread(breakable.stop)
    backend = backend_on(breakable.port)
    try:
        health = await backend.health()
        assert not health.ok
        assert str(breakable.port) in health.details
        for call in (backend.list(), backend.create(1), backend.drop(1), backend.partition(1).open(1)):
            with pytest.raises(StorageError, match=str(breakable.port)):
                await call
    finally:
        await asyncio.to_thread(breakable.start)
    await eventually(lambda: backend.create(1))
    assert await backend.list() == [1]
    assert await backend.health() == (True, "")
    await backend.close()


async def test_a_database_that_does_not_answer_holds_nobody_for_ever() -> None:
    """Towards a server that takes connections and says nothing, health and calls end, and closing does too."""

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        backend = backend_on(server.sockets[0].getsockname()[1], connect_timeout="200ms")
        assert not (await asyncio.wait_for(backend.health(), PATIENCE_S)).ok
        with pytest.raises(StorageError):
            await asyncio.wait_for(backend.list(), PATIENCE_S)
        await asyncio.wait_for(backend.close(), PATIENCE_S)
