"""What is particular to SQLite: its files, what can be wrong with them, and disks that fail."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from querator.errors import InvalidRequest
from querator.waist import Batch, Opened, OutcomeUnknown, StorageError
from storage import SqliteBackend, open_backend


@contextmanager
def files_no_larger_than(limit_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def tables(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    return names


async def test_a_disk_that_takes_no_more_fails_the_commit_and_nothing_else(tmp_path: Path) -> None:
    """A commit that the disk refuses leaves nothing, health tells of it, and all is well once there is room."""
    backend = await SqliteBackend.open(name="a", path=tmp_path / "a.db")
    await backend.create(1)
    partition = backend.partition(1)
    await partition.open(1)
    await partition.commit(Batch(number=1, summary=b"s", blocks={1: b"x"}))
    with files_no_larger_than(400_000):
        with pytest.raises(StorageError) as caught:
            await partition.commit(Batch(number=2, summary=b"t", blocks={2: bytes(2_000_000)}))
        health = await backend.health()
    assert not isinstance(caught.value, OutcomeUnknown)
    assert "a.db" in str(caught.value)
    assert not health.ok
    assert "a.db" in health.details
    assert await partition.open(1) == Opened(1, b"s")
    await partition.commit(Batch(number=2, summary=b"u", blocks={2: bytes(2_000_000)}))
    assert (await backend.health()).ok
    await backend.close()


async def test_a_disk_that_takes_nothing_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    """If not even a small write can follow a failed commit, it is unknown whether it landed; the next open tells."""
    backend = await SqliteBackend.open(name="a", path=tmp_path / "a.db")
    await backend.create(1)
    partition = backend.partition(1)
    await partition.open(1)
    await partition.commit(Batch(number=1, summary=b"s"))
    with files_no_larger_than(4096), pytest.raises(OutcomeUnknown):
        await partition.commit(Batch(number=2, summary=b"t", blocks={2: b"x"}))
    assert await partition.open(1) == Opened(1, b"s")
    await partition.commit(Batch(number=2, summary=b"u", blocks={2: b"x"}))
    await backend.close()


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """A file of other content is named in the error, and left as it is."""
    path = tmp_path / "a.db"
    path.write_bytes(b"certainly not a database" * 100)
    with pytest.raises(StorageError, match=r"a\.db"):
        await SqliteBackend.open(name="a", path=path)
    assert path.read_bytes() == b"certainly not a database" * 100


async def test_a_path_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """A folder that cannot be made, or a folder in the place of the file, gives an error that names it."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file"):
        await SqliteBackend.open(name="a", path=tmp_path / "file" / "a.db")
    with pytest.raises(StorageError):
        await SqliteBackend.open(name="a", path=tmp_path)


async def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    """A database with other tables is not taken over."""
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    with pytest.raises(StorageError, match="another program"):
        await SqliteBackend.open(name="a", path=tmp_path / "a.db")


async def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    """A file whose schema is newer than this program is not opened, and not changed."""
    backend = await SqliteBackend.open(name="a", path=tmp_path / "a.db")
    await backend.close()
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("UPDATE querator_file SET version = version + 1")
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="version 2"):
        await SqliteBackend.open(name="a", path=tmp_path / "a.db")


async def test_a_drop_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    """Tables without a partition, which a crash in the middle of a drop leaves, are gone after the next open."""
    backend = await SqliteBackend.open(name="a", path=tmp_path / "a.db")
    await backend.create(1)
    partition = backend.partition(1)
    await partition.open(1)
    await partition.commit(Batch(number=1, summary=b"", blocks=dict.fromkeys(range(1, 200), b"x")))
    await backend.close()
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("DELETE FROM partition")
    connection.commit()
    connection.close()
    backend = await SqliteBackend.open(name="a", path=tmp_path / "a.db")
    await backend.close()
    assert tables(tmp_path / "a.db") == {"querator_file", "partition"}


async def test_a_drop_gives_the_space_back_before_it_returns(tmp_path: Path) -> None:
    """When drop has returned, the tables of the partition are gone, however many steps that took."""
    backend = await SqliteBackend.open(name="a", path=tmp_path / "a.db")
    await backend.create(1)
    partition = backend.partition(1)
    await partition.open(1)
    await partition.commit(Batch(number=1, summary=b"", blocks=dict.fromkeys(range(1, 200), b"x")))
    await backend.drop(1)
    assert tables(tmp_path / "a.db") == {"querator_file", "partition"}
    await backend.close()


async def test_a_create_clears_what_an_interrupted_drop_left(tmp_path: Path) -> None:
    """A partition that is made while the remains of an earlier one are there starts empty."""
    backend = await SqliteBackend.open(name="a", path=tmp_path / "a.db")
    await backend.create(1)
    partition = backend.partition(1)
    await partition.open(1)
    await partition.commit(Batch(number=1, summary=b"", blocks=dict.fromkeys(range(1, 200), b"x")))
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("DELETE FROM partition")
    connection.commit()
    connection.close()
    await asyncio.wait_for(backend.create(1), 30)
    assert await partition.open(1) == Opened(0, b"")
    assert await partition.scan_blocks(1, 1000, 10) == []
    await backend.close()


async def test_another_process_in_the_way_delays_and_does_not_break(tmp_path: Path) -> None:
    """A commit waits while another process holds the file's write lock, and lands after it."""
    backend = await SqliteBackend.open(name="a", path=tmp_path / "a.db")
    await backend.create(1)
    partition = backend.partition(1)
    await partition.open(1)
    connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    commit = asyncio.create_task(partition.commit(Batch(number=1, summary=b"")))
    await asyncio.sleep(0)
    assert not commit.done()
    connection.execute("ROLLBACK")
    connection.close()
    await commit
    await backend.close()


async def test_drivers_are_opened_by_name(tmp_path: Path) -> None:
    """A backend is what its configuration says, with relative paths under the data folder."""
    memory = await open_backend(name="m", driver="memory", affinity=0.5, options={}, data_dir=tmp_path)
    assert (memory.name, memory.driver, memory.affinity) == ("m", "memory", 0.5)
    options = {"path": "sub/s.db", "synchronous": "NORMAL"}
    sqlite = await open_backend(name="s", driver="sqlite", affinity=1.0, options=options, data_dir=tmp_path)
    assert (tmp_path / "sub" / "s.db").exists()
    await sqlite.close()


@pytest.mark.parametrize(
    ("driver", "options", "named"),
    [
        ("oracle", {}, "oracle"),
        ("memory", {"path": "x"}, "path"),
        ("sqlite", {"path": "x", "fast": True}, "fast"),
        ("sqlite", {}, "path"),
        ("sqlite", {"path": 7}, "path"),
        ("sqlite", {"path": "x", "synchronous": "extra"}, "synchronous"),
    ],
)
async def test_a_wrong_configuration_is_named(
    tmp_path: Path, driver: str, options: dict[str, object], named: str
) -> None:
    """An unknown driver, an unknown option and a wrong value are refused by name, and make no file."""
    with pytest.raises(InvalidRequest, match=named):
        await open_backend(name="b", driver=driver, affinity=1.0, options=options, data_dir=tmp_path)
    assert not list(tmp_path.iterdir())
